-- Checks for wrk, as whole requests made beforehand: wrk -s wrk.lua URL -- KEY BODY COUNT
-- BODY has a %d for the number of each identifier. Says its figures as one line of JSON.

local requests = {}
local at = 0

function init(args)
  local key, body, count = args[1], args[2], tonumber(args[3])
  wrk.method = "POST"
  wrk.headers["Authorization"] = "Bearer " .. key
  wrk.headers["Content-Type"] = "application/json"
  local used = 0
  -- In no order of the identifiers.
  local function number()
    used = used + 1
    return string.format("%d", (used * 7919) % count)
  end
  while used < count do
    local filled = string.gsub(body, "%%d", number)
    table.insert(requests, wrk.format(nil, nil, nil, filled))
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50":%d,"p99":%d,"p999":%d,"errors":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    e.connect + e.read + e.write + e.status + e.timeout))
end
