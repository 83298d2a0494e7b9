-- Authenticates clients by the keys in the Secret, which has the lines that `moonpool key new` prints. The file is read
-- again when it changes.
return auth.keys { file = "/gateway/secrets/keys" }
