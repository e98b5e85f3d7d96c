DROP TRIGGER seal_no_update;

DROP TRIGGER seal_no_delete;

DROP TRIGGER seal_no_replace;

DROP TRIGGER entry_not_sealed;

DROP TABLE seal;
