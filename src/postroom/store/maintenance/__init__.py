"""Backup, restore, migration and verification of stored mail.

A backup is a data folder, and the only format: `postroom --data FOLDER verify` checks it, `restore`
copies it into another data folder, and `migrate --from FOLDER` into PostgreSQL. `migrate --copy`
makes the same from PostgreSQL.

    FOLDER/
      postroom.db         the database, a copy of one moment, marked as a backup
      blobs/              every blob that the database names
      audit.key           the key of the audit log, unless POSTROOM_AUDIT_KEY has it
      audit.mark          the newest audit entry: a log that is shorter was cut
      secrets/            the logins of accounts, encrypted
      .new-postroom.db    the next database, until it is whole; removed at the end
      .backup-lock        held while a backup or restore writes into the folder

Nothing is sent from a backup. When it is restored, mail that was in the outbox becomes `unknown`,
because the installation may have sent it since.

`lifecycle` says what a database is: active, backup, being migrated, migrated away. `migration`
copies rows from one database to another, and `database_files` copies a SQLite file in use and puts
it in its place. The queries of `postroom verify` are in `lifecycle` too.
`postroom.backup` puts these together with blobs and logins.
"""
