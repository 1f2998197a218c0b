#!/usr/bin/env bash
# A package without dependencies: npm test, npm run, npm pack.
# needs: npm node
set -eu
export npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false npm_config_cache="$PWD/.npm-cache" HOME="$PWD"
cat > package.json <<'J'
{"name": "demo", "version": "1.0.0", "scripts": {"test": "node --test test/", "build": "node build.js"}}
J
mkdir test
cat > test/sum.test.js <<'J'
const test = require('node:test');
const assert = require('node:assert');
test('sum', () => assert.strictEqual(1 + 1, 2));
test('later', async () => { await new Promise((done) => setTimeout(done, 10)); });
J
echo "require('fs').writeFileSync('dist.txt', 'built')" > build.js
npm test 2>&1 | tee out.txt
grep -Eq 'pass 2' out.txt
npm run build --silent; grep -qx built dist.txt
npm pack --silent; tar -tf demo-1.0.0.tgz | grep -q package.json
echo JOB OK
