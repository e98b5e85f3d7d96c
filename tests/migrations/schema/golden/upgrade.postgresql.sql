BEGIN;

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

-- Running upgrade  -> 0001

CREATE TABLE account (
    partition TEXT COLLATE "C" NOT NULL, 
    holder TEXT COLLATE "C" NOT NULL, 
    coordinate BIGINT NOT NULL, 
    posted BIGINT NOT NULL, 
    posted_infinite BIGINT NOT NULL, 
    pending BIGINT NOT NULL, 
    pending_infinite BIGINT NOT NULL, 
    CONSTRAINT pk_account PRIMARY KEY (partition, holder, coordinate), 
    CONSTRAINT ck_account_sign CHECK (posted >= 0 AND pending >= 0 AND posted_infinite >= 0 AND pending_infinite >= 0)
);

CREATE INDEX ix_account_holder ON account (holder);

CREATE TABLE charge (
    id TEXT COLLATE "C" NOT NULL, 
    contract TEXT COLLATE "C" NOT NULL, 
    actor TEXT COLLATE "C" NOT NULL, 
    author BIGINT NOT NULL, 
    partitions TEXT COLLATE "C" NOT NULL, 
    plan TEXT COLLATE "C" NOT NULL, 
    steps BIGINT NOT NULL, 
    steps_posted BIGINT, 
    state TEXT COLLATE "C" NOT NULL, 
    key_id TEXT COLLATE "C" NOT NULL, 
    sealing TEXT COLLATE "C" NOT NULL, 
    key_release TEXT COLLATE "C", 
    deadline BIGINT NOT NULL, 
    prices TEXT COLLATE "C" NOT NULL, 
    recipients TEXT COLLATE "C" NOT NULL, 
    base TEXT COLLATE "C" NOT NULL, 
    entered BIGINT NOT NULL, 
    notices TEXT COLLATE "C" NOT NULL, 
    pipeline TEXT COLLATE "C", 
    CONSTRAINT pk_charge PRIMARY KEY (id), 
    CONSTRAINT ck_charge_state CHECK (state IN ('pending', 'posted', 'voided')), 
    CONSTRAINT ck_charge_steps_posted CHECK (steps_posted IS NULL OR steps_posted BETWEEN 0 AND steps), 
    CONSTRAINT ck_charge_settled CHECK ((state = 'posted') = (steps_posted IS NOT NULL))
);

CREATE INDEX ix_charge_authored ON charge (author, entered);

CREATE INDEX ix_charge_due ON charge (state, deadline);

CREATE TABLE checkpoint (
    tree_size BIGINT NOT NULL, 
    note TEXT COLLATE "C" NOT NULL, 
    CONSTRAINT pk_checkpoint PRIMARY KEY (tree_size), 
    CONSTRAINT ck_checkpoint_tree_size CHECK (tree_size > 0)
);

CREATE TABLE contract (
    document TEXT COLLATE "C" NOT NULL, 
    id TEXT COLLATE "C" NOT NULL, 
    version BIGINT NOT NULL, 
    consumer TEXT COLLATE "C" NOT NULL, 
    consumer_node BIGINT NOT NULL, 
    providers TEXT COLLATE "C" NOT NULL, 
    starts BIGINT NOT NULL, 
    ends BIGINT NOT NULL, 
    runs BIGINT NOT NULL, 
    entered BIGINT NOT NULL, 
    revoked BIGINT NOT NULL, 
    CONSTRAINT pk_contract PRIMARY KEY (document), 
    CONSTRAINT ck_contract_runs CHECK (runs >= 0 AND revoked IN (0, 1))
);

CREATE TABLE contract_head (
    id TEXT COLLATE "C" NOT NULL, 
    document TEXT COLLATE "C" NOT NULL, 
    CONSTRAINT pk_contract_head PRIMARY KEY (id)
);

CREATE TABLE cosignature (
    tree_size BIGINT NOT NULL, 
    vkey TEXT COLLATE "C" NOT NULL, 
    line TEXT COLLATE "C" NOT NULL, 
    CONSTRAINT pk_cosignature PRIMARY KEY (tree_size, vkey), 
    CONSTRAINT ck_cosignature_tree_size CHECK (tree_size > 0)
);

CREATE TABLE dataset (
    provider TEXT COLLATE "C" NOT NULL, 
    dataset TEXT COLLATE "C" NOT NULL, 
    domain TEXT COLLATE "C" NOT NULL, 
    document TEXT COLLATE "C" NOT NULL, 
    entered BIGINT NOT NULL, 
    recommendation TEXT COLLATE "C", 
    CONSTRAINT pk_dataset PRIMARY KEY (provider, dataset)
);

CREATE TABLE document (
    digest TEXT COLLATE "C" NOT NULL, 
    data BYTEA NOT NULL, 
    CONSTRAINT pk_document PRIMARY KEY (digest), 
    CONSTRAINT ck_document_size CHECK (length(data) <= 262144)
);

CREATE TABLE entry (
    position BIGINT NOT NULL, 
    id TEXT COLLATE "C" NOT NULL, 
    kind TEXT COLLATE "C" NOT NULL, 
    time BIGINT NOT NULL, 
    data BYTEA NOT NULL, 
    CONSTRAINT pk_entry PRIMARY KEY (position), 
    CONSTRAINT ck_entry_position CHECK (position >= 0), 
    CONSTRAINT ck_entry_size CHECK (length(data) BETWEEN 2 AND 65535), 
    CONSTRAINT uq_entry_id UNIQUE (id)
);

CREATE TABLE forgiven (
    partition TEXT COLLATE "C" NOT NULL, 
    holder TEXT COLLATE "C" NOT NULL, 
    loss TEXT COLLATE "C" NOT NULL, 
    CONSTRAINT pk_forgiven PRIMARY KEY (partition, holder)
);

CREATE TABLE node (
    position BIGINT NOT NULL, 
    time BIGINT NOT NULL, 
    kind TEXT COLLATE "C" NOT NULL, 
    organisation TEXT COLLATE "C" NOT NULL, 
    parents TEXT COLLATE "C" NOT NULL, 
    children TEXT COLLATE "C" NOT NULL, 
    members TEXT COLLATE "C" NOT NULL, 
    epsilon TEXT COLLATE "C", 
    CONSTRAINT pk_node PRIMARY KEY (position), 
    CONSTRAINT ck_node_epsilon CHECK ((kind = 'coalition') = (epsilon IS NOT NULL))
);

CREATE INDEX ix_node_kind ON node (kind, position);

CREATE TABLE organisation (
    did TEXT COLLATE "C" NOT NULL, 
    name TEXT COLLATE "C" NOT NULL, 
    roles TEXT COLLATE "C" NOT NULL, 
    node BIGINT NOT NULL, 
    moves TEXT COLLATE "C" NOT NULL, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_organisation PRIMARY KEY (did)
);

CREATE TABLE partition (
    ref TEXT COLLATE "C" NOT NULL, 
    provider TEXT COLLATE "C" NOT NULL, 
    dataset TEXT COLLATE "C" NOT NULL, 
    epsilon TEXT COLLATE "C" NOT NULL, 
    delta TEXT COLLATE "C" NOT NULL, 
    relation TEXT COLLATE "C" NOT NULL, 
    unit TEXT COLLATE "C" NOT NULL, 
    unit_records_max BIGINT NOT NULL, 
    records BIGINT NOT NULL, 
    data_key TEXT COLLATE "C" NOT NULL, 
    terms TEXT COLLATE "C" NOT NULL, 
    opened BIGINT NOT NULL, 
    retired BIGINT NOT NULL, 
    entered BIGINT NOT NULL, 
    commitments TEXT COLLATE "C" NOT NULL, 
    CONSTRAINT pk_partition PRIMARY KEY (ref), 
    CONSTRAINT ck_partition_records CHECK (records > 0), 
    CONSTRAINT ck_partition_unit_records_max CHECK (unit_records_max > 0), 
    CONSTRAINT ck_partition_retired CHECK (retired IN (0, 1))
);

CREATE TABLE policy_version (
    domain TEXT COLLATE "C" NOT NULL, 
    version BIGINT NOT NULL, 
    document TEXT COLLATE "C" NOT NULL, 
    issuer TEXT COLLATE "C" NOT NULL, 
    effective BIGINT NOT NULL, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_policy_version PRIMARY KEY (domain, version), 
    CONSTRAINT ck_policy_version_version CHECK (version > 0)
);

CREATE TABLE signing_key (
    key_id TEXT COLLATE "C" NOT NULL, 
    owner TEXT COLLATE "C" NOT NULL, 
    x TEXT COLLATE "C" NOT NULL, 
    charge TEXT COLLATE "C", 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_signing_key PRIMARY KEY (key_id)
);

CREATE TABLE tree_node (
    level BIGINT NOT NULL, 
    position BIGINT NOT NULL, 
    hash BYTEA NOT NULL, 
    CONSTRAINT pk_tree_node PRIMARY KEY (level, position), 
    CONSTRAINT ck_tree_node_hash CHECK (length(hash) = 32)
);

CREATE SCHEMA epsilon_guard;

CREATE FUNCTION epsilon_guard.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END
$$;

CREATE FUNCTION epsilon_guard.refuse_gap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.position <> 0 AND NOT EXISTS (SELECT FROM public.entry WHERE position = NEW.position - 1) THEN
    RAISE EXCEPTION 'entries follow one another without a gap' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER entry_no_change BEFORE UPDATE OR DELETE ON entry FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE entry ENABLE ALWAYS TRIGGER entry_no_change;

CREATE TRIGGER entry_no_truncate BEFORE TRUNCATE ON entry FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE entry ENABLE ALWAYS TRIGGER entry_no_truncate;

CREATE TRIGGER tree_node_no_change BEFORE UPDATE OR DELETE ON tree_node FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE tree_node ENABLE ALWAYS TRIGGER tree_node_no_change;

CREATE TRIGGER tree_node_no_truncate BEFORE TRUNCATE ON tree_node FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE tree_node ENABLE ALWAYS TRIGGER tree_node_no_truncate;

CREATE TRIGGER document_no_change BEFORE UPDATE OR DELETE ON document FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE document ENABLE ALWAYS TRIGGER document_no_change;

CREATE TRIGGER document_no_truncate BEFORE TRUNCATE ON document FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE document ENABLE ALWAYS TRIGGER document_no_truncate;

CREATE TRIGGER checkpoint_no_change BEFORE UPDATE OR DELETE ON checkpoint FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE checkpoint ENABLE ALWAYS TRIGGER checkpoint_no_change;

CREATE TRIGGER checkpoint_no_truncate BEFORE TRUNCATE ON checkpoint FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE checkpoint ENABLE ALWAYS TRIGGER checkpoint_no_truncate;

CREATE TRIGGER cosignature_no_change BEFORE UPDATE OR DELETE ON cosignature FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE cosignature ENABLE ALWAYS TRIGGER cosignature_no_change;

CREATE TRIGGER cosignature_no_truncate BEFORE TRUNCATE ON cosignature FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE cosignature ENABLE ALWAYS TRIGGER cosignature_no_truncate;

CREATE TRIGGER entry_no_gap BEFORE INSERT ON entry FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_gap();

ALTER TABLE entry ENABLE ALWAYS TRIGGER entry_no_gap;

DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'epsilon_writer') THEN CREATE ROLE epsilon_writer NOLOGIN; END IF; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;

GRANT USAGE ON SCHEMA public TO epsilon_writer;

REVOKE ALL ON alembic_version FROM PUBLIC, epsilon_writer;

GRANT SELECT ON alembic_version TO epsilon_writer;

REVOKE ALL ON account FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON account TO epsilon_writer;

REVOKE ALL ON charge FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON charge TO epsilon_writer;

REVOKE ALL ON checkpoint FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT ON checkpoint TO epsilon_writer;

REVOKE ALL ON contract FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON contract TO epsilon_writer;

REVOKE ALL ON contract_head FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON contract_head TO epsilon_writer;

REVOKE ALL ON cosignature FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT ON cosignature TO epsilon_writer;

REVOKE ALL ON dataset FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON dataset TO epsilon_writer;

REVOKE ALL ON document FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT ON document TO epsilon_writer;

REVOKE ALL ON entry FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT ON entry TO epsilon_writer;

REVOKE ALL ON forgiven FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON forgiven TO epsilon_writer;

REVOKE ALL ON node FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON node TO epsilon_writer;

REVOKE ALL ON organisation FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON organisation TO epsilon_writer;

REVOKE ALL ON partition FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON partition TO epsilon_writer;

REVOKE ALL ON policy_version FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON policy_version TO epsilon_writer;

REVOKE ALL ON signing_key FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON signing_key TO epsilon_writer;

REVOKE ALL ON tree_node FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT ON tree_node TO epsilon_writer;

DO $$ BEGIN IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN BEGIN CREATE ROLE epsilon_guard NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; ALTER FUNCTION epsilon_guard.refuse_change() OWNER TO epsilon_guard; ALTER FUNCTION epsilon_guard.refuse_gap() OWNER TO epsilon_guard; ALTER SCHEMA epsilon_guard OWNER TO epsilon_guard; END IF; END $$;

INSERT INTO alembic_version (version_num) VALUES ('0001') RETURNING alembic_version.version_num;

-- Running upgrade 0001 -> 0002

CREATE TABLE seal (
    position BIGINT NOT NULL, 
    successor TEXT COLLATE "C" NOT NULL, 
    tree_size BIGINT NOT NULL, 
    CONSTRAINT pk_seal PRIMARY KEY (position), 
    CONSTRAINT ck_seal_position CHECK (position = 0), 
    CONSTRAINT ck_seal_tree_size CHECK (tree_size >= 0)
);

CREATE FUNCTION epsilon_guard.refuse_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM public.seal) THEN
    RAISE EXCEPTION 'the book was moved, and takes no more entries' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER seal_no_change BEFORE UPDATE OR DELETE ON seal FOR EACH ROW EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE seal ENABLE ALWAYS TRIGGER seal_no_change;

CREATE TRIGGER seal_no_truncate BEFORE TRUNCATE ON seal FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_change();

ALTER TABLE seal ENABLE ALWAYS TRIGGER seal_no_truncate;

CREATE TRIGGER entry_not_sealed BEFORE INSERT ON entry FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_sealed();

ALTER TABLE entry ENABLE ALWAYS TRIGGER entry_not_sealed;

DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'epsilon_writer') THEN CREATE ROLE epsilon_writer NOLOGIN; END IF; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;

GRANT USAGE ON SCHEMA public TO epsilon_writer;

REVOKE ALL ON alembic_version FROM PUBLIC, epsilon_writer;

GRANT SELECT ON alembic_version TO epsilon_writer;

REVOKE ALL ON seal FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT ON seal TO epsilon_writer;

DO $$ BEGIN IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN BEGIN CREATE ROLE epsilon_guard NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; ALTER FUNCTION epsilon_guard.refuse_sealed() OWNER TO epsilon_guard; ALTER SCHEMA epsilon_guard OWNER TO epsilon_guard; END IF; END $$;

UPDATE alembic_version SET version_num='0002' WHERE alembic_version.version_num = '0001';

-- Running upgrade 0002 -> 0003

CREATE TABLE epoch (
    position BIGINT NOT NULL, 
    opening BIGINT NOT NULL, 
    CONSTRAINT pk_epoch PRIMARY KEY (position), 
    CONSTRAINT ck_epoch_position CHECK (position = 0)
);

CREATE FUNCTION epsilon_guard.refuse_checkpoint_ahead() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  entries CONSTANT bigint := (SELECT coalesce(max(position), -1) + 1 FROM public.entry);
  first CONSTANT bigint := (SELECT min(tree_size) FROM added);
BEGIN
  IF EXISTS (SELECT FROM added WHERE tree_size > entries)
  OR (SELECT count(*) FROM public.checkpoint WHERE tree_size >= first) <> (SELECT count(*) FROM added) THEN
    RAISE EXCEPTION '% is not of the entries that are there', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
$$;

CREATE FUNCTION epsilon_guard.refuse_node_ahead() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  entries CONSTANT bigint := (SELECT coalesce(max(position), -1) + 1 FROM public.entry);
BEGIN
  IF EXISTS (
    SELECT FROM added
    WHERE CASE WHEN level BETWEEN 0 AND 62 THEN position NOT BETWEEN 0 AND (entries >> level::integer) - 1 ELSE true END
  ) THEN
    RAISE EXCEPTION '% is not of the entries that are there', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
$$;

CREATE FUNCTION epsilon_guard.refuse_seal_ahead() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM added WHERE tree_size <> (SELECT coalesce(max(entry.position), -1) + 1 FROM public.entry)
  ) THEN
    RAISE EXCEPTION '% is not of the entries that are there', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER checkpoint_not_ahead AFTER INSERT ON checkpoint REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_checkpoint_ahead();

ALTER TABLE checkpoint ENABLE ALWAYS TRIGGER checkpoint_not_ahead;

CREATE TRIGGER tree_node_not_ahead AFTER INSERT ON tree_node REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_node_ahead();

ALTER TABLE tree_node ENABLE ALWAYS TRIGGER tree_node_not_ahead;

CREATE TRIGGER seal_not_ahead AFTER INSERT ON seal REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION epsilon_guard.refuse_seal_ahead();

ALTER TABLE seal ENABLE ALWAYS TRIGGER seal_not_ahead;

REVOKE ALL ON epoch FROM PUBLIC, epsilon_writer;

GRANT SELECT ON epoch TO epsilon_writer;

REVOKE ALL ON seal FROM PUBLIC, epsilon_writer;

GRANT SELECT ON seal TO epsilon_writer;

DO $$ BEGIN IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN BEGIN CREATE ROLE epsilon_guard NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; ALTER FUNCTION epsilon_guard.refuse_checkpoint_ahead() OWNER TO epsilon_guard; ALTER FUNCTION epsilon_guard.refuse_node_ahead() OWNER TO epsilon_guard; ALTER FUNCTION epsilon_guard.refuse_seal_ahead() OWNER TO epsilon_guard; ALTER SCHEMA epsilon_guard OWNER TO epsilon_guard; END IF; END $$;

UPDATE alembic_version SET version_num='0003' WHERE alembic_version.version_num = '0002';

-- Running upgrade 0003 -> 0004

CREATE TABLE key_terms (
    key_id TEXT COLLATE "C" NOT NULL, 
    owner TEXT COLLATE "C" NOT NULL, 
    starts BIGINT NOT NULL, 
    until BIGINT, 
    suspended_by TEXT COLLATE "C", 
    revoked BIGINT, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_key_terms PRIMARY KEY (key_id)
);

CREATE TABLE recovery_quorum (
    organisation TEXT COLLATE "C" NOT NULL, 
    members TEXT COLLATE "C" NOT NULL, 
    threshold BIGINT NOT NULL, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_recovery_quorum PRIMARY KEY (organisation)
);

REVOKE ALL ON key_terms FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON key_terms TO epsilon_writer;

REVOKE ALL ON recovery_quorum FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON recovery_quorum TO epsilon_writer;

UPDATE alembic_version SET version_num='0004' WHERE alembic_version.version_num = '0003';

-- Running upgrade 0004 -> 0005

ALTER TABLE document DROP CONSTRAINT ck_document_size;

ALTER TABLE document ADD CONSTRAINT ck_document_size CHECK (length(data) <= 2097152);

UPDATE alembic_version SET version_num='0005' WHERE alembic_version.version_num = '0004';

-- Running upgrade 0005 -> 0006

CREATE TABLE stream_version (
    provider TEXT COLLATE "C" NOT NULL, 
    dataset TEXT COLLATE "C" NOT NULL, 
    version BIGINT NOT NULL, 
    document TEXT COLLATE "C" NOT NULL, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_stream_version PRIMARY KEY (provider, dataset, version), 
    CONSTRAINT ck_stream_version_version CHECK (version > 0)
);

REVOKE ALL ON stream_version FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON stream_version TO epsilon_writer;

UPDATE alembic_version SET version_num='0006' WHERE alembic_version.version_num = '0005';

-- Running upgrade 0006 -> 0007

CREATE TABLE extended_quorum (
    organisation TEXT COLLATE "C" NOT NULL, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_extended_quorum PRIMARY KEY (organisation)
);

REVOKE ALL ON extended_quorum FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON extended_quorum TO epsilon_writer;

UPDATE alembic_version SET version_num='0007' WHERE alembic_version.version_num = '0006';

-- Running upgrade 0007 -> 0008

CREATE TABLE audit (
    charge TEXT COLLATE "C" NOT NULL, 
    pipeline TEXT COLLATE "C" NOT NULL, 
    above BIGINT NOT NULL, 
    entered BIGINT NOT NULL, 
    CONSTRAINT pk_audit PRIMARY KEY (charge), 
    CONSTRAINT ck_audit_above CHECK (above IN (0, 1))
);

REVOKE ALL ON audit FROM PUBLIC, epsilon_writer;

GRANT SELECT, INSERT, UPDATE ON audit TO epsilon_writer;

UPDATE alembic_version SET version_num='0008' WHERE alembic_version.version_num = '0007';

COMMIT;
