return auth.keys { file = env("MOONPOOL_KEYS", "/run/secrets/keys") }
