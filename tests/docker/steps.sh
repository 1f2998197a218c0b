#!/usr/bin/env bash
# The Dockerfile's steps without an engine: COPY, RUN, HEALTHCHECK and CMD are read from it and run in a clean folder,
# in their order. /src, /opt/hermes and /data become folders below that one. Needs the network (or a pip mirror) and
# Python 3.11. What only an image has is named and left out: the base image, the user, the volume.
#
#   tests/docker/steps.sh
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
clean=$(mktemp -d)
gateway=
finish() {
  [ -z "$gateway" ] || kill "$gateway" 2>/dev/null || true
  rm -rf "$clean"
}
trap finish EXIT
mkdir -p "$clean/src" "$clean/opt" "$clean/bin"
ln -s "$(command -v python3.11 || command -v python3)" "$clean/bin/python"

here() { sed -e "s#/opt/hermes#$clean/opt/hermes#g" <<<"$1"; }
words() { python3 -c 'import json, sys; print(" ".join(json.loads(sys.argv[1])))' "${1#*CMD }"; }
# An environment of its own, as in a container: nothing of the caller's but what pip needs to find packages.
environment=(env -i HOME="$clean" LANG=C.UTF-8 PATH="$clean/opt/hermes/bin:$clean/bin:/usr/bin:/bin"
  HERMES_HOME="$clean/data" PYTHONUNBUFFERED=1)
for name in PIP_INDEX_URL PIP_CONFIG_FILE PIP_CERT SSL_CERT_FILE HTTPS_PROXY https_proxy; do
  [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done

health= start= port=${STEPS_PORT:-18642}
while read -r line; do
  case $line in
    "" | \#*) ;;
    "COPY --from="*) echo "left out  $line" ;;
    COPY*)
      echo "step      $line"
      read -ra names <<<"${line#COPY }"
      unset 'names[-1]'
      for name in "${names[@]}"; do tar -C "$root" --exclude=__pycache__ --exclude='*.egg-info' -cf - "$name" | tar -C "$clean/src" -xf -; done
      ;;
    "RUN useradd"*) echo "left out  $line" ;;
    RUN*)
      echo "step      $line"
      (cd "$clean/src" && "${environment[@]}" bash -euc "$(here "${line#RUN }")" >"$clean/said" 2>&1) || { cat "$clean/said"; exit 1; }
      ;;
    HEALTHCHECK*) health=$(words "$line") ;;
    CMD*) start=$(words "$line") ;;
    *) echo "left out  $line" ;;
  esac
done <"$root/Dockerfile"

install -d -m 0700 "$clean/data"
cd "$clean/data"
health() { "${environment[@]}" bash -c "$health" >"$clean/said" 2>&1; }

echo "installed $("${environment[@]}" hermes --version), $("${environment[@]}" pip list --format=freeze --disable-pip-version-check | wc -l) packages"
"${environment[@]}" pip check --disable-pip-version-check
while read -r pin; do # every package that is there has the version of the pins
  grep -qixF "${pin//_/-}" <(sed 's/ *;.*//; s/_/-/g' "$root/requirements-dev.txt") || { echo "not pinned: $pin"; exit 1; }
done < <("${environment[@]}" pip list --format=freeze --disable-pip-version-check | grep -viE '^(pip|hermes-gateway)=')

if health; then echo "healthy before it was started"; exit 1; fi
echo "step      CMD $start"
"${environment[@]}" API_SERVER_ENABLED=true API_SERVER_PORT="$port" bash -c "exec $start" >"$clean/log" 2>&1 &
gateway=$!
answers() { "${environment[@]}" python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=5)"; }
for _ in $(seq 100); do
  if health && answers 2>/dev/null; then break; fi
  sleep 0.2
done
health || { cat "$clean/said" "$clean/log"; exit 1; }
echo "step      HEALTHCHECK $health"
sed "s#$clean##" "$clean/said"
find "$clean/data" -maxdepth 1 -name .env -printf 'mode      .env %m\n'
answers
echo "api       /health answers on $port"
kill -TERM "$gateway"
code=0; wait "$gateway" || code=$?
gateway=
echo "ended     with $code after SIGTERM"
if health; then echo "healthy after it had ended"; exit 1; fi
[ "$code" = 0 ]
