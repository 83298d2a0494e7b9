return tool {
  "Writes what the server `everything` answers to a message into a file of the server `files`.",
  input = { path = t.string { max = 200 }, message = t.string { max = 200 } },
  function(args)
    local echoed = try(upstream "everything":call("echo", { message = args.message })).text
    return try(upstream "files":call("write_file", { path = args.path, content = echoed })).text
  end,
}
