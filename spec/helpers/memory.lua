-- For specs that measure the memory of a gateway: AddressSanitizer keeps freed memory for a while, which the gateway does not use.
local memory = {}

-- Environment variables with which AddressSanitizer keeps little freed memory.
function memory.environment()
  local options = os.getenv "ASAN_OPTIONS"
  return { ASAN_OPTIONS = (options and options .. ":" or "") .. "quarantine_size_mb=1:thread_local_quarantine_size_kb=64:detect_stack_use_after_return=0" }
end

return memory
