return try(postgres.open { "postgres://app@127.0.0.1:5432/shop", timeout = 5 })
