BEGIN;

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001

CREATE TABLE account (
    partition TEXT NOT NULL, 
    holder TEXT NOT NULL, 
    coordinate INTEGER NOT NULL, 
    posted INTEGER NOT NULL, 
    posted_infinite INTEGER NOT NULL, 
    pending INTEGER NOT NULL, 
    pending_infinite INTEGER NOT NULL, 
    CONSTRAINT pk_account PRIMARY KEY (partition, holder, coordinate), 
    CONSTRAINT ck_account_sign CHECK (posted >= 0 AND pending >= 0 AND posted_infinite >= 0 AND pending_infinite >= 0)
)
 STRICT;

CREATE INDEX ix_account_holder ON account (holder);

CREATE TABLE charge (
    id TEXT NOT NULL, 
    contract TEXT NOT NULL, 
    actor TEXT NOT NULL, 
    author INTEGER NOT NULL, 
    partitions TEXT NOT NULL, 
    "plan" TEXT NOT NULL, 
    steps INTEGER NOT NULL, 
    steps_posted INTEGER, 
    state TEXT NOT NULL, 
    key_id TEXT NOT NULL, 
    sealing TEXT NOT NULL, 
    key_release TEXT, 
    deadline INTEGER NOT NULL, 
    prices TEXT NOT NULL, 
    recipients TEXT NOT NULL, 
    base TEXT NOT NULL, 
    entered INTEGER NOT NULL, 
    notices TEXT NOT NULL, 
    pipeline TEXT, 
    CONSTRAINT pk_charge PRIMARY KEY (id), 
    CONSTRAINT ck_charge_state CHECK (state IN ('pending', 'posted', 'voided')), 
    CONSTRAINT ck_charge_steps_posted CHECK (steps_posted IS NULL OR steps_posted BETWEEN 0 AND steps), 
    CONSTRAINT ck_charge_settled CHECK ((state = 'posted') = (steps_posted IS NOT NULL))
)
 STRICT;

CREATE INDEX ix_charge_authored ON charge (author, entered);

CREATE INDEX ix_charge_due ON charge (state, deadline);

CREATE TABLE checkpoint (
    tree_size INTEGER NOT NULL, 
    note TEXT NOT NULL, 
    CONSTRAINT pk_checkpoint PRIMARY KEY (tree_size), 
    CONSTRAINT ck_checkpoint_tree_size CHECK (tree_size > 0)
)
 STRICT;

CREATE TABLE contract (
    document TEXT NOT NULL, 
    id TEXT NOT NULL, 
    version INTEGER NOT NULL, 
    consumer TEXT NOT NULL, 
    consumer_node INTEGER NOT NULL, 
    providers TEXT NOT NULL, 
    starts INTEGER NOT NULL, 
    ends INTEGER NOT NULL, 
    runs INTEGER NOT NULL, 
    entered INTEGER NOT NULL, 
    revoked INTEGER NOT NULL, 
    CONSTRAINT pk_contract PRIMARY KEY (document), 
    CONSTRAINT ck_contract_runs CHECK (runs >= 0 AND revoked IN (0, 1))
)
 STRICT;

CREATE TABLE contract_head (
    id TEXT NOT NULL, 
    document TEXT NOT NULL, 
    CONSTRAINT pk_contract_head PRIMARY KEY (id)
)
 STRICT;

CREATE TABLE cosignature (
    tree_size INTEGER NOT NULL, 
    vkey TEXT NOT NULL, 
    line TEXT NOT NULL, 
    CONSTRAINT pk_cosignature PRIMARY KEY (tree_size, vkey), 
    CONSTRAINT ck_cosignature_tree_size CHECK (tree_size > 0)
)
 WITHOUT ROWID,
 STRICT;

CREATE TABLE dataset (
    provider TEXT NOT NULL, 
    dataset TEXT NOT NULL, 
    domain TEXT NOT NULL, 
    document TEXT NOT NULL, 
    entered INTEGER NOT NULL, 
    recommendation TEXT, 
    CONSTRAINT pk_dataset PRIMARY KEY (provider, dataset)
)
 STRICT;

CREATE TABLE document (
    digest TEXT NOT NULL, 
    data BLOB NOT NULL, 
    CONSTRAINT pk_document PRIMARY KEY (digest), 
    CONSTRAINT ck_document_size CHECK (length(data) <= 262144)
)
 WITHOUT ROWID,
 STRICT;

CREATE TABLE entry (
    position INTEGER NOT NULL, 
    id TEXT NOT NULL, 
    kind TEXT NOT NULL, 
    time INTEGER NOT NULL, 
    data BLOB NOT NULL, 
    CONSTRAINT pk_entry PRIMARY KEY (position), 
    CONSTRAINT ck_entry_position CHECK (position >= 0), 
    CONSTRAINT ck_entry_size CHECK (length(data) BETWEEN 2 AND 65535), 
    CONSTRAINT uq_entry_id UNIQUE (id)
)
 STRICT;

CREATE TABLE forgiven (
    partition TEXT NOT NULL, 
    holder TEXT NOT NULL, 
    loss TEXT NOT NULL, 
    CONSTRAINT pk_forgiven PRIMARY KEY (partition, holder)
)
 STRICT;

CREATE TABLE node (
    position INTEGER NOT NULL, 
    time INTEGER NOT NULL, 
    kind TEXT NOT NULL, 
    organisation TEXT NOT NULL, 
    parents TEXT NOT NULL, 
    children TEXT NOT NULL, 
    members TEXT NOT NULL, 
    epsilon TEXT, 
    CONSTRAINT pk_node PRIMARY KEY (position), 
    CONSTRAINT ck_node_epsilon CHECK ((kind = 'coalition') = (epsilon IS NOT NULL))
)
 STRICT;

CREATE INDEX ix_node_kind ON node (kind, position);

CREATE TABLE organisation (
    did TEXT NOT NULL, 
    name TEXT NOT NULL, 
    roles TEXT NOT NULL, 
    node INTEGER NOT NULL, 
    moves TEXT NOT NULL, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_organisation PRIMARY KEY (did)
)
 STRICT;

CREATE TABLE partition (
    ref TEXT NOT NULL, 
    provider TEXT NOT NULL, 
    dataset TEXT NOT NULL, 
    epsilon TEXT NOT NULL, 
    delta TEXT NOT NULL, 
    relation TEXT NOT NULL, 
    unit TEXT NOT NULL, 
    unit_records_max INTEGER NOT NULL, 
    records INTEGER NOT NULL, 
    data_key TEXT NOT NULL, 
    terms TEXT NOT NULL, 
    opened INTEGER NOT NULL, 
    retired INTEGER NOT NULL, 
    entered INTEGER NOT NULL, 
    commitments TEXT NOT NULL, 
    CONSTRAINT pk_partition PRIMARY KEY (ref), 
    CONSTRAINT ck_partition_records CHECK (records > 0), 
    CONSTRAINT ck_partition_unit_records_max CHECK (unit_records_max > 0), 
    CONSTRAINT ck_partition_retired CHECK (retired IN (0, 1))
)
 STRICT;

CREATE TABLE policy_version (
    domain TEXT NOT NULL, 
    version INTEGER NOT NULL, 
    document TEXT NOT NULL, 
    issuer TEXT NOT NULL, 
    effective INTEGER NOT NULL, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_policy_version PRIMARY KEY (domain, version), 
    CONSTRAINT ck_policy_version_version CHECK (version > 0)
)
 STRICT;

CREATE TABLE signing_key (
    key_id TEXT NOT NULL, 
    owner TEXT NOT NULL, 
    x TEXT NOT NULL, 
    charge TEXT, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_signing_key PRIMARY KEY (key_id)
)
 STRICT;

CREATE TABLE tree_node (
    level INTEGER NOT NULL, 
    position INTEGER NOT NULL, 
    hash BLOB NOT NULL, 
    CONSTRAINT pk_tree_node PRIMARY KEY (level, position), 
    CONSTRAINT ck_tree_node_hash CHECK (length(hash) = 32)
)
 WITHOUT ROWID,
 STRICT;

CREATE TRIGGER entry_no_update BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entry is append-only'); END;

CREATE TRIGGER entry_no_delete BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entry is append-only'); END;

CREATE TRIGGER entry_no_replace BEFORE INSERT ON entry WHEN EXISTS (SELECT 1 FROM entry WHERE position = NEW.position OR id = NEW.id) BEGIN SELECT RAISE(ABORT, 'entry is append-only'); END;

CREATE TRIGGER tree_node_no_update BEFORE UPDATE ON tree_node BEGIN SELECT RAISE(ABORT, 'tree_node is append-only'); END;

CREATE TRIGGER tree_node_no_delete BEFORE DELETE ON tree_node BEGIN SELECT RAISE(ABORT, 'tree_node is append-only'); END;

CREATE TRIGGER tree_node_no_replace BEFORE INSERT ON tree_node WHEN EXISTS (SELECT 1 FROM tree_node WHERE level = NEW.level AND position = NEW.position) BEGIN SELECT RAISE(ABORT, 'tree_node is append-only'); END;

CREATE TRIGGER document_no_update BEFORE UPDATE ON document BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER document_no_delete BEFORE DELETE ON document BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER document_no_replace BEFORE INSERT ON document WHEN EXISTS (SELECT 1 FROM document WHERE digest = NEW.digest) BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER checkpoint_no_update BEFORE UPDATE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint is append-only'); END;

CREATE TRIGGER checkpoint_no_delete BEFORE DELETE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint is append-only'); END;

CREATE TRIGGER checkpoint_no_replace BEFORE INSERT ON checkpoint WHEN EXISTS (SELECT 1 FROM checkpoint WHERE tree_size = NEW.tree_size) BEGIN SELECT RAISE(ABORT, 'checkpoint is append-only'); END;

CREATE TRIGGER cosignature_no_update BEFORE UPDATE ON cosignature BEGIN SELECT RAISE(ABORT, 'cosignature is append-only'); END;

CREATE TRIGGER cosignature_no_delete BEFORE DELETE ON cosignature BEGIN SELECT RAISE(ABORT, 'cosignature is append-only'); END;

CREATE TRIGGER cosignature_no_replace BEFORE INSERT ON cosignature WHEN EXISTS (SELECT 1 FROM cosignature WHERE tree_size = NEW.tree_size AND vkey = NEW.vkey) BEGIN SELECT RAISE(ABORT, 'cosignature is append-only'); END;

CREATE TRIGGER entry_no_gap BEFORE INSERT ON entry WHEN NEW.position IS NOT (SELECT coalesce(max(position), -1) + 1 FROM entry) BEGIN SELECT RAISE(ABORT, 'entries follow one another without a gap'); END;

INSERT INTO alembic_version (version_num) VALUES ('0001') RETURNING version_num;

-- Running upgrade 0001 -> 0002

CREATE TABLE seal (
    position INTEGER NOT NULL, 
    successor TEXT NOT NULL, 
    tree_size INTEGER NOT NULL, 
    CONSTRAINT pk_seal PRIMARY KEY (position), 
    CONSTRAINT ck_seal_position CHECK (position = 0), 
    CONSTRAINT ck_seal_tree_size CHECK (tree_size >= 0)
)
 STRICT;

CREATE TRIGGER seal_no_update BEFORE UPDATE ON seal BEGIN SELECT RAISE(ABORT, 'seal is append-only'); END;

CREATE TRIGGER seal_no_delete BEFORE DELETE ON seal BEGIN SELECT RAISE(ABORT, 'seal is append-only'); END;

CREATE TRIGGER seal_no_replace BEFORE INSERT ON seal WHEN EXISTS (SELECT 1 FROM seal WHERE position = NEW.position) BEGIN SELECT RAISE(ABORT, 'seal is append-only'); END;

CREATE TRIGGER entry_not_sealed BEFORE INSERT ON entry WHEN EXISTS (SELECT 1 FROM seal) BEGIN SELECT RAISE(ABORT, 'the book was moved, and takes no more entries'); END;

UPDATE alembic_version SET version_num='0002' WHERE alembic_version.version_num = '0001';

-- Running upgrade 0002 -> 0003

CREATE TABLE epoch (
    position INTEGER NOT NULL, 
    opening INTEGER NOT NULL, 
    CONSTRAINT pk_epoch PRIMARY KEY (position), 
    CONSTRAINT ck_epoch_position CHECK (position = 0)
)
 STRICT;

CREATE TRIGGER checkpoint_not_ahead BEFORE INSERT ON checkpoint WHEN (NEW.tree_size > (SELECT coalesce(max(tree_size), 0) FROM checkpoint) AND NEW.tree_size <= (SELECT coalesce(max(position), -1) + 1 FROM entry)) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'checkpoint is not of the entries that are there'); END;

CREATE TRIGGER tree_node_not_ahead BEFORE INSERT ON tree_node WHEN (NEW.level BETWEEN 0 AND 62 AND NEW.position >= 0 AND NEW.position < (SELECT coalesce(max(position), -1) + 1 FROM entry) >> NEW.level) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'tree_node is not of the entries that are there'); END;

CREATE TRIGGER seal_not_ahead BEFORE INSERT ON seal WHEN (NEW.tree_size = (SELECT coalesce(max(position), -1) + 1 FROM entry)) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'seal is not of the entries that are there'); END;

UPDATE alembic_version SET version_num='0003' WHERE alembic_version.version_num = '0002';

-- Running upgrade 0003 -> 0004

CREATE TABLE key_terms (
    key_id TEXT NOT NULL, 
    owner TEXT NOT NULL, 
    starts INTEGER NOT NULL, 
    until INTEGER, 
    suspended_by TEXT, 
    revoked INTEGER, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_key_terms PRIMARY KEY (key_id)
)
 STRICT;

CREATE TABLE recovery_quorum (
    organisation TEXT NOT NULL, 
    members TEXT NOT NULL, 
    threshold INTEGER NOT NULL, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_recovery_quorum PRIMARY KEY (organisation)
)
 STRICT;

UPDATE alembic_version SET version_num='0004' WHERE alembic_version.version_num = '0003';

-- Running upgrade 0004 -> 0005

DROP TRIGGER document_no_update;

DROP TRIGGER document_no_delete;

DROP TRIGGER document_no_replace;

ALTER TABLE document RENAME TO document_replaced;

CREATE TABLE document (
    digest TEXT NOT NULL, 
    data BLOB NOT NULL, 
    CONSTRAINT pk_document PRIMARY KEY (digest), 
    CONSTRAINT ck_document_size CHECK (length(data) <= 2097152)
)
 WITHOUT ROWID,
 STRICT;

INSERT INTO document (digest, data) SELECT digest, data FROM document_replaced;

DROP TABLE document_replaced;

CREATE TRIGGER document_no_update BEFORE UPDATE ON document BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER document_no_delete BEFORE DELETE ON document BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

CREATE TRIGGER document_no_replace BEFORE INSERT ON document WHEN EXISTS (SELECT 1 FROM document WHERE digest = NEW.digest) BEGIN SELECT RAISE(ABORT, 'document is append-only'); END;

UPDATE alembic_version SET version_num='0005' WHERE alembic_version.version_num = '0004';

-- Running upgrade 0005 -> 0006

CREATE TABLE stream_version (
    provider TEXT NOT NULL, 
    dataset TEXT NOT NULL, 
    version INTEGER NOT NULL, 
    document TEXT NOT NULL, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_stream_version PRIMARY KEY (provider, dataset, version), 
    CONSTRAINT ck_stream_version_version CHECK (version > 0)
)
 STRICT;

UPDATE alembic_version SET version_num='0006' WHERE alembic_version.version_num = '0005';

-- Running upgrade 0006 -> 0007

CREATE TABLE extended_quorum (
    organisation TEXT NOT NULL, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_extended_quorum PRIMARY KEY (organisation)
)
 STRICT;

UPDATE alembic_version SET version_num='0007' WHERE alembic_version.version_num = '0006';

-- Running upgrade 0007 -> 0008

CREATE TABLE audit (
    charge TEXT NOT NULL, 
    pipeline TEXT NOT NULL, 
    above INTEGER NOT NULL, 
    entered INTEGER NOT NULL, 
    CONSTRAINT pk_audit PRIMARY KEY (charge), 
    CONSTRAINT ck_audit_above CHECK (above IN (0, 1))
)
 STRICT;

UPDATE alembic_version SET version_num='0008' WHERE alembic_version.version_num = '0007';

COMMIT;
