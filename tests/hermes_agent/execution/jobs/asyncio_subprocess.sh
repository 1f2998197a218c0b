#!/usr/bin/env bash
# asyncio: children, their pipes, a stream server, a signal handler.
# needs: python3
set -eu
timeout 60 python3 - <<'PY'
import asyncio
import os
import signal
import sys


async def main():
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", f"print({n})", stdout=asyncio.subprocess.PIPE) for n in range(4)
    ]
    assert [int((await child.communicate())[0]) for child in children] == [0, 1, 2, 3]
    shell = await asyncio.create_subprocess_shell("cat | tr a-z A-Z", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert (await shell.communicate(b"loud"))[0] == b"LOUD"

    async def answer(reader, writer):
        writer.write((await reader.readline())[::-1])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(b"abc\n")
    assert await reader.read() == b"\ncba"
    writer.close()
    server.close()
    got = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(got.wait(), 5)


asyncio.run(main())
PY
echo JOB OK
