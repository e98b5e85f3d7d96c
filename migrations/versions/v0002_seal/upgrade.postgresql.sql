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
