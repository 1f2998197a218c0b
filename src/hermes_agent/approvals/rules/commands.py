"""What is known of programs: who reaches the network, who acts on the host, what cannot be undone, where they write.

A program that is not named here needs nothing: it runs confined, and what it may not do there fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from hermes_agent.approvals.judgement import Need
from hermes_agent.approvals.rules.floor import is_recursive, operands, roots_of_find
from hermes_agent.approvals.rules.paths import Places
from hermes_agent.approvals.shell.words import UNKNOWN, Word, names


def _table(text: str) -> dict[str, frozenset[str]]:
    """`a b: x y` → a and b with x and y."""
    found: dict[str, frozenset[str]] = {}
    for line in text.strip().splitlines():
        names, _, values = line.partition(":")
        for name in names.split():
            found[name] = found.get(name, frozenset()) | frozenset(values.split())
    return found


GLOBAL_OPTIONS = _table("""
git: -C -c --git-dir --work-tree --namespace --config-env --super-prefix --exec-path --attr-source
docker podman: -H --host -c --context --config -l --log-level --tlscacert --tlscert --tlskey
kubectl oc: -n --namespace --context --kubeconfig --cluster --user -s --server --token --as -v
npm pnpm yarn: --prefix -C --dir --cwd -w --workspace --filter -F --registry --userconfig --loglevel
helm: -n --namespace --kube-context --kubeconfig
cargo: -C -Z --config --color --manifest-path
go: -C
pip pip3: --python --log --proxy --cache-dir --timeout --retries
uv: --directory --project --config-file --cache-dir
gh: -R --repo
aws: --profile --region --output --endpoint-url
systemctl: -H --host -M --machine
make: -C --directory -f --file
bundle poetry pdm composer mvn gradle terraform brew apt apt-get dnf yum conda: -C -f -c -s -o -t --directory --project
""")
"""Programs whose first operand is a subcommand, and their options that take the next word before it."""

_TALKS = names(
    "curl wget ssh scp sftp ftp lftp telnet nc ncat netcat socat ping ping6 fping dig nslookup host whois traceroute "
    "tracepath mtr nmap gh glab hub aws gcloud gsutil bq az doctl heroku flyctl fly vercel netlify wrangler s3cmd "
    "rclone s5cmd mosh aria2c yt-dlp youtube-dl http https xh httpie w3m lynx links elinks twine mail mailx sendmail "
    "msmtp mutt ssh-copy-id ssh-keyscan ntpdate certbot autossh ab wrk hey k6 iperf iperf3 websocat grpcurl kaggle "
    "pulumi sshfs speedtest speedtest-cli wscat smbclient"
)
_TALKING = _table("""
git: push fetch pull clone ls-remote send-email svn lfs+pull lfs+fetch lfs+push remote+update remote+show remote+prune
git: submodule+update submodule+add archive+--remote
pip pip3: install download wheel index search
pipx: install run upgrade upgrade-all inject reinstall
uv: add sync lock pip+install pip+sync pip+compile tool+install tool+run tool+upgrade python+install publish self+update
uvx: *
poetry pdm: install add update lock publish self sync
pipenv: install sync update upgrade lock
hatch: publish
conda mamba micromamba: install create update search env+create env+update
npm: install i in ci add update up upgrade outdated audit view info show search publish login whoami ping create exec-
npm: install-test it unpublish deprecate dist-tag access owner token star doctor
yarn: * install add upgrade up dlx create outdated info audit npm+publish npm+audit global+add publish login
pnpm: install i add update up upgrade dlx create outdated audit publish fetch
bun: install i add update upgrade create x pm+trust publish
bunx: *
deno: install add upgrade cache publish outdated
corepack: prepare install use up
nvm fnm volta: install use-
pyenv rbenv asdf mise rtx: install update plugin+add use
rustup: update install toolchain+install target+add component+add self+update default
cargo: install add update search publish fetch login logout owner yank generate outdated audit binstall
go: get mod+download mod+tidy mod+vendor
gem: install update fetch push outdated
bundle bundler: install update add outdated
composer: install update require create-project outdated global self-update
mvn mvnw ./mvnw: deploy dependency:get dependency:resolve dependency:go-offline release:perform
gradle gradlew ./gradlew: publish
dotnet: restore tool+install tool+update nuget+push workload+install add+package
nuget: install restore push update
mix: deps.get deps.update hex.publish local.hex archive.install
cabal opam luarocks stack: install update init upload download setup
cpan cpanm: *
helm: pull push repo+add repo+update dependency+update dependency+build dep+update search+hub
terraform tofu terragrunt: init get plan apply destroy refresh import login
ansible ansible-playbook: *
ansible-galaxy: install
vagrant: up box+add init-
docker podman nerdctl: pull push login search
huggingface-cli hf: download upload login repo
ollama: pull push run
dvc: push pull fetch
svn: checkout co update up commit ci import export ls info
hg: clone pull push incoming outgoing
playwright: install
pre-commit: autoupdate install-hooks
firebase: deploy login init
serverless sls cdk sam eas: deploy
wandb: login sync
apt apt-get aptitude: update install upgrade full-upgrade dist-upgrade source download build-dep
dnf yum zypper: install update upgrade search check-update makecache refresh
brew: install upgrade update tap reinstall bundle search fetch
snap flatpak apk: install add update upgrade refresh search
pacman: -S -Sy -Syu -Syyu -Ss
""")
_HOST = names(
    "sudo su doas pkexec runuser systemctl service initctl rc-service docker podman nerdctl docker-compose "
    "podman-compose kubectl oc minikube k3s k9s mount umount crontab at batch useradd usermod userdel adduser deluser "
    "groupadd passwd chpasswd visudo iptables ip6tables nft ufw firewall-cmd modprobe insmod rmmod hostnamectl "
    "timedatectl localectl loginctl swapon swapoff losetup fdisk sfdisk sgdisk parted chroot nsenter unshare "
    "launchctl systemd-run tcpdump nmcli update-alternatives virsh machinectl lxc incus vagrant setcap insmod kexec "
    "cryptsetup lvcreate vgcreate zpool"
)
_ON_HOST = _table("""
apt apt-get aptitude: update install upgrade full-upgrade dist-upgrade remove purge autoremove clean build-dep
dnf yum zypper: install update upgrade remove erase autoremove makecache refresh
apk snap flatpak: add del install remove update upgrade refresh
brew: install upgrade update uninstall remove reinstall tap untap services link unlink cleanup
pacman: -S -Sy -Syu -Syyu -R -Rs -Rns -U
dpkg rpm: -i -r -P -U -e --install --remove --purge --configure
helm: install upgrade uninstall rollback delete
kind k3d: create delete load
sysctl: -w -p
date hwclock: -s --set --systohc -w
ip: link+set addr+add addr+del route+add route+del
""")
_LOOPBACK = re.compile(
    r"(?:\w+://)?(?:[^/@\s]*@)?(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1?\]|::1)(?:[:/?#].*|)", re.DOTALL | re.I
)
_REMOTE = re.compile(r"(?!file:)[\w+.-]+://|[\w.-]+@[\w.-]+:|[\w-]+(?:\.[\w-]+)+:|[\w-]{2,}:(?![\\/]{2})", re.I)
_DATABASES = _table("""
psql pg_dump pg_restore pg_dumpall createdb dropdb pg_isready mysql mysqldump mysqladmin mariadb: -h --host
redis-cli mongosh mongo mongodump mongorestore clickhouse-client cqlsh: -h --host
""")
_OFFLINE = names("--offline --no-index --help --version --no-install")
_INTO_LAST = names("cp mv ln install rsync scp convert magick montage ffmpeg sox")
_ONTO_ALL = names(
    "touch mkdir rmdir rm unlink tee truncate mkfifo mknod shred gzip gunzip bzip2 xz chmod chown chgrp mv virtualenv "
    "dos2unix zip sqlite3 mogrify"
)
_ONTO_FIRST = frozenset({"zip", "sqlite3", "virtualenv"})
_OUTPUT = _table("""
gcc g++ cc c++ clang clang++ rustc ld as go pandoc sort dot iconv zstd xmllint patch nasm javac: -o --output -d
curl: -o --output --output-dir
wget: -O --output-document -P --directory-prefix
unzip: -d
tar: -C --directory
soffice libreoffice: --outdir
openssl: -out -keyout
mkdocs: -d --site-dir
git: -o --output --output-directory
cp mv ln install: -t --target-directory
cmake: -B --prefix
gpg: -o --output
pip pip3: -t --target -d --dest --prefix
npm: --prefix
cargo: --root --target-dir
7z: -o
mktemp: -p --tmpdir
""")
_NARROWED = re.compile(r"-(?:i?(?:name|path|wholename|regex)|empty|newer.*|[acm](?:time|min)|size)")


def needs(name: str, words: Sequence[Word], cwd: str | None, places: Places) -> Iterator[Need]:
    """What a call visibly needs. `words` begin with the program; global options are left out."""
    rest = [word for word in words[1:] if word.text]
    texts = [word.text for word in rest]
    shown = " ".join(
        [name, *(text for text in texts[:1] if re.fullmatch(r"[\w:.-]+", text) and name in GLOBAL_OPTIONS)]
    )
    acts_on_host = name in _HOST or _listed(_ON_HOST, name, texts)
    if acts_on_host and not {"--help", "--version"} & set(texts):
        yield Need("host", shown, f"{shown} acts on the machine itself")
    elif name in ("chown", "chgrp") and _gives_away(rest):
        yield Need("host", name, f"{name} gives files to another user")
    if _reaches_network(name, rest, texts):
        yield Need("network", shown, f"{shown} reaches the network")
    lost = _lost(name, rest, texts, cwd, places)
    if lost:
        yield Need("change", shown, lost)
    own = [Word(f"{places.user_home}/.gitconfig")] if texts[:2] == ["config", "--global"] and len(texts) > 3 else []
    for target in [*own, *_written(name, rest, texts)]:
        folder = places.outside(target, cwd)
        if folder is not None:
            yield Need("folder", folder, f"{name} writes to {folder}, outside the workspace")


def _listed(table: dict[str, frozenset[str]], name: str, texts: Sequence[str]) -> bool:
    """Whether the subcommand (or the first two of it) stands in the table; `*` stands for a call without one."""
    values = table.get(name)
    if values is None:
        return False
    plain = [text for text in texts if not text.startswith("-") or name in ("pacman", "dpkg", "rpm", "sysctl", "date")]
    if not plain:
        return "*" in values
    if "*" in values and len(values) == 1:
        return True
    return plain[0] in values or "+".join(plain[:2]) in values or any(f"{plain[0]}+{text}" in values for text in texts)


def _reaches_network(name: str, rest: Sequence[Word], texts: Sequence[str]) -> bool:
    if _OFFLINE & set(texts) or texts in (["-h"], ["-V"], ["help"], ["-v"]):
        return False
    if name in _TALKS:
        return _addresses(name, texts)
    if name in _DATABASES:
        hosts = [*_values(texts, _DATABASES[name]), *(text for text in texts if "://" in text)]
        return any(not _LOOPBACK.fullmatch(host) and not host.startswith("/") for host in hosts)
    if name == "rsync":
        return any(_REMOTE.match(word.text) and not _LOOPBACK.fullmatch(word.text) for word in operands(rest))
    if name == "openssl":
        return "s_client" in texts and not any(_LOOPBACK.fullmatch(text) for text in texts)
    if name == "gpg":
        return bool({"--recv-keys", "--send-keys", "--search-keys", "--refresh-keys"} & set(texts))
    if name == "code":
        return "--install-extension" in texts
    if name == "npx":
        return any(text in ("-y", "--yes") or re.match(r"create-|degit", text) or "@" in text[1:] for text in texts[:2])
    if name == "go" and texts[:1] in (["install"], ["run"]):
        return any("@" in text for text in texts)
    if name == "go" and texts[:1] == ["list"]:
        return "-u" in texts
    if name == "npm" and texts[:1] == ["init"]:
        return bool(operands(rest)[1:])
    if name == "deno" and texts[:1] == ["run"]:
        return any(text.startswith("https://") for text in texts)
    if name in ("pip", "pip3") and texts[:1] == ["list"]:
        return bool({"-o", "--outdated"} & set(texts))
    return _listed(_TALKING, name, texts) and not _stays_here(name, rest, texts)


def _addresses(name: str, texts: Sequence[str]) -> bool:
    """Whether a program that talks to other machines is not merely told to talk to this one."""
    if not texts or (name in ("nc", "ncat", "netcat") and any(re.match(r"-\w*l", text) for text in texts)):
        return bool(texts) and name not in ("nc", "ncat", "netcat")
    named = [
        text.replace(UNKNOWN, "1")
        for at, text in enumerate(texts)
        if at == 0 or texts[at - 1] not in ("-H", "-d", "-e")
    ]
    here = [text for text in named if _LOOPBACK.fullmatch(text)]
    return not here or any(re.match(r"\w+://", text) and not _LOOPBACK.fullmatch(text) for text in named)


def _stays_here(name: str, rest: Sequence[Word], texts: Sequence[str]) -> bool:
    """A subcommand that is told to work with what lies on this machine."""
    others = operands(rest)[1:]
    if name == "git" and texts[0] in ("clone", "push", "fetch", "pull", "ls-remote"):
        local = r"(?:\.{1,2}|/|~|file:)" if texts[0] != "clone" else r"(?!.*(?:://|:|\0))|file:"
        return bool(others) and bool(re.match(local, others[0].text, re.DOTALL)) and UNKNOWN not in others[0].text
    if name == "git" and texts[0] == "submodule":
        return "--no-fetch" in texts
    if name in ("pip", "pip3"):
        local = {"--no-deps", "--no-build-isolation"} <= set(texts)
        paths = [word for word in others if not word.text.startswith("-")]
        return local and bool(paths) and all(re.match(r"[./~]|\w.*\.whl$", word.text) for word in paths)
    return False


def _gives_away(rest: Sequence[Word]) -> bool:
    owner = operands(rest)[:1]
    return bool(owner) and owner[0].sure and not any(word.text.startswith("--reference") for word in rest)


def _lost(name: str, rest: Sequence[Word], texts: Sequence[str], cwd: str | None, places: Places) -> str:
    """Why nothing would bring back what this call removes from the workspace; empty when it removes nothing."""
    if name == "rm" and is_recursive(texts) and not all(_temporary(word, cwd, places) for word in operands(rest)):
        return "rm -r deletes folders with all that is in them"
    if name == "find":
        runs = [texts[at + 1 : at + 3] for at, text in enumerate(texts) if text.startswith(("-exec", "-ok"))]
        if all(_temporary(root, cwd, places) for root in roots_of_find(rest)):
            return ""
        wide = not any(_NARROWED.fullmatch(text) for text in texts)
        if ("-delete" in texts and wide) or any(run[:1] == ["rm"] and (wide or is_recursive(run[1:])) for run in runs):
            return "find deletes whatever it comes across"
    if name in ("shred", "wipe", "srm"):
        return f"{name} makes files unreadable for good"
    if name == "rsync" and any(text.startswith("--del") for text in texts) and not {"-n", "--dry-run"} & set(texts):
        return "rsync --delete removes what the source does not have"
    return _lost_by_git(texts) if name == "git" and texts else ""


def _lost_by_git(texts: Sequence[str]) -> str:
    command, flags = texts[0], set(texts[1:])
    letters = {letter for flag in flags if re.fullmatch(r"-[a-zA-Z]+", flag) for letter in flag[1:]}
    everything = bool(flags & {".", "./", ":/", "*", ":"})
    if command == "reset" and "--hard" in flags:
        return "git reset --hard throws away changes that were not committed"
    if command == "clean" and ("f" in letters or "--force" in flags) and not ("n" in letters or "--dry-run" in flags):
        return "git clean deletes files that git does not know"
    if command in ("checkout", "switch") and ("f" in letters or flags & {"--force", "--discard-changes"}):
        return f"git {command} --force throws away changes that were not committed"
    if (command == "checkout" and everything) or (
        command == "restore" and everything and not _only_index(flags, letters)
    ):
        return f"git {command} of everything throws away changes that were not committed"
    if command in ("filter-branch", "filter-repo"):
        return f"git {command} rewrites the whole history"
    if texts[:2] in (["stash", "clear"], ["reflog", "expire"], ["reflog", "delete"]) or "--prune=now" in flags:
        return f"git {' '.join(texts[:2])} drops what could have been brought back"
    if texts[:2] == ["worktree", "remove"] and ("f" in letters or "--force" in flags):
        return "git worktree remove --force deletes changes that were not committed"
    return ""


def _only_index(flags: set[str], letters: set[str]) -> bool:
    staged, tree = "--staged" in flags or "S" in letters, "--worktree" in flags or "W" in letters
    return staged and not tree


def _temporary(word: Word, cwd: str | None, places: Places) -> bool:
    """In a temporary folder, as far as can be seen; a workspace that lies in one is none."""
    path = places.path(Word(word.text.replace(UNKNOWN, "x"), glob=True), cwd)
    if path is None or places.in_workspace(path) or (word.text.startswith(UNKNOWN) and cwd is not None):
        return False
    return any(path.startswith(f"{folder}/") for folder in ("/tmp", "/var/tmp", "/dev/shm"))


def _written(name: str, rest: Sequence[Word], texts: Sequence[str]) -> Iterator[Word]:
    """Where a call visibly writes."""
    plain = operands(rest)
    if name in _OUTPUT:
        into = _OUTPUT[name] - {"-C", "--directory"} if name == "tar" and _creates(texts) else _OUTPUT[name]
        yield from (Word(f"{value}/x" if option in _FOLDERS else value) for option, value in _pairs(texts, into))
    if name == "tar" and _creates(texts):
        yield from (Word(text) for text in texts if re.search(r"\.(?:tar|t?gz|tgz|bz2|t?xz|zst)$", text))
    if name in _INTO_LAST and len(plain) > 1 and not (name == "rsync" and _REMOTE.match(plain[-1].text)):
        yield plain[-1]
    if name in _ONTO_ALL:
        skipped = 1 if name in ("chmod", "chown", "chgrp") else 0
        targets = plain[skipped:] if name not in _ONTO_FIRST else plain[:1]
        yield from targets
    if name == "dd" or name == "make":
        yield from (Word(match[1] + "/x") for text in texts if (match := re.match(r"(?:PREFIX|DESTDIR)=(/.*)", text)))
        yield from (Word(text[3:]) for text in texts if text.startswith("of="))
    if name in ("sed", "perl") and any(re.match(r"-\w*i|--in-place", text) for text in texts):
        scripted = any(re.match(r"-\w*[ef]$|--expression|--file", text) for text in texts)
        yield from plain[0 if scripted and name == "sed" else 1 :]
    if name in ("python", "python3") and texts[:2] == ["-m", "venv"]:
        yield from plain[1:]
    if name == "git" and plain:
        yield from _written_by_git(texts, plain)
    if name == "cargo" and texts[:1] in (["new"], ["init"]):
        yield from plain[1:2]


def _written_by_git(texts: Sequence[str], plain: Sequence[Word]) -> Iterator[Word]:
    match texts[:2]:
        case ["clone", *_]:
            yield from plain[2:3]
        case ["init", *_]:
            yield from plain[1:2]
        case ["worktree", "add"]:
            yield from plain[2:3]


_FOLDERS = names("-C --directory -P --directory-prefix --outdir --output-dir -t --target")


def _creates(texts: Sequence[str]) -> bool:
    return any(re.match(r"-?[a-zA-Z]*[cruA]", text) for text in texts[:1]) or "--create" in texts


def _values(texts: Sequence[str], options: Iterable[str]) -> list[str]:
    return [value for _, value in _pairs(texts, options)]


def _pairs(texts: Sequence[str], options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The values of options: `-o x`, `-ox`, `--output x`, `--output=x`."""
    known = list(options)
    for at, text in enumerate(texts):
        if text == "--":
            return
        for option in known:
            if text == option and at + 1 < len(texts):
                yield option, texts[at + 1]
            elif option.startswith("--") and text.startswith(option + "="):
                yield option, text[len(option) + 1 :]
            elif len(option) == 2 and text.startswith(option) and len(text) > 2:
                yield option, text[2:]
