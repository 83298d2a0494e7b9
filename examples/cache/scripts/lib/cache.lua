return try(redis.open { "redis://127.0.0.1:6379/0", timeout = 0.5 })
