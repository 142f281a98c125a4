package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite" // the driver
)

// database is an extension.Persistence: a table of keys and values.
type database struct{ *sql.DB }

// openDatabase opens the database in a file, which is created if it does not exist.
func openDatabase(ctx context.Context, file string) (*database, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx,
		`CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, value BLOB NOT NULL)`); err != nil {
		db.Close()
		return nil, fmt.Errorf("open database %s: %w", file, err)
	}
	return &database{db}, nil
}

func (d *database) Load(ctx context.Context, prefix string, each func(string, []byte) error) error {
	rows, err := d.QueryContext(ctx,
		`SELECT key, value FROM objects WHERE substr(key, 1, length(?1)) = ?1`, prefix)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var value []byte
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		if err := each(key, value); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d *database) Put(ctx context.Context, key string, value []byte) error {
	_, err := d.ExecContext(ctx, `INSERT INTO objects (key, value) VALUES (?1, ?2)
		ON CONFLICT (key) DO UPDATE SET value = ?2`, key, value)
	return err
}

func (d *database) Delete(ctx context.Context, key string) error {
	_, err := d.ExecContext(ctx, `DELETE FROM objects WHERE key = ?`, key)
	return err
}
