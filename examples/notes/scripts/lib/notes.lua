-- The database that all scripts share.
return try(sqlite.open("notes.db", {
  setup = "create table if not exists notes (id integer primary key, text text not null, at text not null, gone_at text)",
}))
