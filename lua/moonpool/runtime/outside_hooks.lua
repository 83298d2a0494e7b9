-- What stands between scripts and the libraries that reach outside, while a call is recorded or replayed; all nil
-- otherwise.
--   draw(real, ...)                          math.random
--   now(real, ...)                           os.time without a table
--   date(real, format, when)                 os.date
--   clock(real)                              os.clock
--   env(word, name, real)                    a variable: word is "env" or "secret", real() gives what the environment has
--   sqlite(shown, kind, sql, params, real)   a statement of the database `shown`
--   redis(server, commands, real)            commands for the Redis server `server`, each a list of texts
--   postgres(database, statements, real)     statements for the database `database`, each { sql =, n =, … }
--   upstream(name, what, called, args, real) a request to an upstream: what is call, read, prompt, tools or is_up
--   denied(kind, path)                       the script at `path` has asked for what no grant of the kind allows
--   confine(base)                            stand-ins for the names that `scripts.trust: full` adds; base: the names that a script has anyway
-- Functions of moonpool.host are replaced in its tables instead.

return {}
