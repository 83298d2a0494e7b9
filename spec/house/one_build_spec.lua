-- Specs of modules load modules.so of the build whose binary the other specs run, which is named in busted's --cpath:
-- with that of another build, no sanitizer would see what they try.

it("no spec chooses a build of modules.so by itself", function()
  -- `package.cpath = package.cpath .. …` is allowed: what is appended is only looked at where the first places have no
  -- modules.so.
  local found <close> = assert(io.popen "grep -rlE '^ *package[.]cpath = [^p]' spec --include='*.lua' --exclude-dir=node_modules")
  assert.equal("", found:read "a")
end)

it("modules.so is of the build of the binary", function()
  local build = (os.getenv "MOONPOOL" or "build/debug/moonpool"):match "(build/[^/]+)/moonpool$"
  if build == "build/tsan" then return pending "the interpreter cannot load ThreadSanitizer's build" end
  assert.equal("./" .. build .. "/modules.so", package.searchpath("modules", package.cpath))
end)
