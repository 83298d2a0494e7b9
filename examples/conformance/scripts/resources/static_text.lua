return resource {
  "A text that never changes.",
  uri = "test://static-text", mime = "text/plain", ttl = 60 * seconds, public = true,
  "This is the content of the static text resource.",
}
