return resource {
  "Visits by page, as the job added them up last.",
  uri = "visits://report",
  function() return store.get "report" or "no visits yet" end,
}
