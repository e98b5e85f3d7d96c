DROP TABLE stream_version;
