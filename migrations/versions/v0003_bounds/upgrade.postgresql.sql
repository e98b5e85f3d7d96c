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
