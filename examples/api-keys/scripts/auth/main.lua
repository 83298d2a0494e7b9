return auth.keys { file = "keys" }
