-- Authenticates clients by the keys in the secret `moonpool_keys`, which has the lines that `moonpool key new` prints.
-- The file is read again when it changes.
return auth.keys { file = env("MOONPOOL_KEYS", "/run/secrets/moonpool_keys") }
