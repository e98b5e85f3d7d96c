DROP TRIGGER seal_no_change ON seal;

DROP TRIGGER seal_no_truncate ON seal;

DROP TRIGGER entry_not_sealed ON entry;

DROP FUNCTION epsilon_guard.refuse_sealed();

DROP TABLE seal;
