#!/usr/bin/env bash
# node: a worker thread, a child, a server on the loopback, files.
# needs: node
set -eu
cat > main.js <<'J'
const { Worker } = require('worker_threads');
const { execFileSync, fork } = require('child_process');
const http = require('http');
const fs = require('fs');
if (process.argv[2] === 'child') { process.send('hi'); process.exit(0); }
fs.writeFileSync('out.json', JSON.stringify({ pid: process.pid }));
new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', { eval: true }).on('message', (value) => {
  if (value !== 42) process.exit(1);
  if (execFileSync('echo', ['x']).toString() !== 'x\n') process.exit(2);
  fork(__filename, ['child']).on('message', () => {
    const server = http.createServer((_, answer) => answer.end('ok')).listen(0, '127.0.0.1', () => {
      http.get({ port: server.address().port, host: '127.0.0.1' }, (answer) => {
        answer.on('data', (data) => { console.log(String(data)); server.close(); });
      });
    });
  });
});
J
test "$(timeout 60 node main.js)" = ok
test -s out.json
echo JOB OK
