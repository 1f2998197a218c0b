// How a client in JavaScript says what it found: one line of JSON for each check.

export const BASE = process.env.HERMES_BASE;
export const KEY = process.env.HERMES_KEY;
const checks = [];

/** A check passes when it throws nothing. `limit`: why the client cannot pass it, whatever the server does. */
export function check(name, run, { limit = "" } = {}) {
  checks.push([name, run, limit]);
}

export function isEqual(found, wanted) {
  const [left, right] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (left !== right) throw new Error(`${left} instead of ${right}`);
}

export function isTrue(value, what) {
  if (!value) throw new Error(what);
}

export async function run() {
  for (const [name, check, limit] of checks) {
    let why = "";
    try {
      await check();
    } catch (error) {
      why = `${error?.constructor?.name}: ${error?.message}`;
    }
    console.log(JSON.stringify({ check: name, why, limit: why && limit }));
  }
  process.exit(0);
}
