return auth.jwt { issuer = "https://tokens.example", key_file = "public.pem" }
