-- For specs that weigh a gateway: AddressSanitizer keeps what was freed, for a while, which is none of the gateway's.
local memory = {}

-- An environment to start it in, where little is kept.
function memory.environment()
  local options = os.getenv "ASAN_OPTIONS"
  return { ASAN_OPTIONS = (options and options .. ":" or "") .. "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:detect_stack_use_after_return=0" }
end

return memory
