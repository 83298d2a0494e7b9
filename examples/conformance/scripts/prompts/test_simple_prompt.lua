return prompt { "Has no arguments.", "This is a simple prompt for testing." }
