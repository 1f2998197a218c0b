-- Schema 103: pairing (see that section of the schema for what the tables mean).
-- Who was let in or shut out by hand. An account of '' stands for whichever of ours on that platform.
CREATE TABLE pairings (
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',
    native_id TEXT NOT NULL,
    state TEXT NOT NULL,                         -- paired | revoked
    changed_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (platform, account, native_id)
);

-- Who asked to be let in, with a salted hash of the code they were given; gone when it is used or over.
CREATE TABLE pairing_requests (
    platform TEXT NOT NULL,
    account TEXT NOT NULL DEFAULT '',
    native_id TEXT NOT NULL,
    display_name TEXT,
    salt TEXT NOT NULL,
    code_hash TEXT NOT NULL,
    requested_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (platform, account, native_id)
);

-- How often a code was wrong lately; whoever issues or approves one holds this row meanwhile.
CREATE TABLE pairing_guards (
    platform TEXT PRIMARY KEY,
    failures BIGINT NOT NULL,
    failed_at DOUBLE PRECISION NOT NULL,
    locked_until DOUBLE PRECISION                -- NULL: not locked
);
