return resource {
  "Says which URI it was read by.",
  uri = "test://template/{id}/data", mime = "application/json",
  complete = { id = { "123", "124", "200" } },
  function(vars) return { id = vars.id, templateTest = true, data = "Data for ID: " .. vars.id } end,
}
