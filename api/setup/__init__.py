"""Files that a service, an issuer and parties need: keys, profiles, and a whole folder of them for development."""
