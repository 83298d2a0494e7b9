return resource {
  "May be subscribed to.",
  uri = "test://watched-resource", mime = "text/plain",
  "This is the content of the watched resource.",
}
