-- Checks for wrk: wrk -s wrk.lua URL -- KEY COUNT PIPELINING PATH BODY HEADER [PATH BODY HEADER]...
-- BODY contains a %d for the number of the identifier, or a %07d for requests of equal length. There
-- are COUNT identifiers. HEADER, if not empty, is the value of X-Identifier, with the same number.
-- Several requests alternate. PIPELINING requests are written at once; wrk takes the latency of all
-- of them for each. Without arguments wrk sends GETs, as without a script. Prints one line of JSON.

-- Up to this number of identifiers, whole requests are prepared; above it, halves of requests.
local WHOLE_MAX = 20000
local HALVES = 1000

local writes = {}
local at = 0

local function fill(text, number)
  return (string.gsub(text, "%%0?%d*d", function(format)
    return string.format(format, number())
  end))
end

-- Identifier numbers in a scattered order.
local function numbers(count)
  local used = 0
  return function()
    used = used + 1
    return (used * 7919) % count
  end
end

local function requestsOf(kind, count)
  local nextNumber, used, last = numbers(count), 0, 0
  local function number()
    used = used + 1
    last = nextNumber()
    return last
  end
  local requests = {}
  while used < count do
    local body = fill(kind.body, number)
    wrk.headers["X-Identifier"] = kind.header and fill(kind.header, function() return last end)
    table.insert(requests, wrk.format(nil, kind.path, nil, body))
  end
  return requests
end

local function prebuilt(kinds, count, pipelining)
  local byKind, max = {}, 0
  for i, kind in ipairs(kinds) do
    byKind[i] = requestsOf(kind, count)
    max = math.max(max, #byKind[i])
  end
  local alternating = {}
  for i = 0, max - 1 do
    for _, requests in ipairs(byKind) do
      table.insert(alternating, requests[i % #requests + 1])
    end
  end
  -- One write has PIPELINING requests. The last write is filled up with the first requests.
  for first = 1, #alternating, pipelining do
    local batch = {}
    for i = 0, pipelining - 1 do batch[i + 1] = alternating[(first + i - 1) % #alternating + 1] end
    table.insert(writes, table.concat(batch))
  end
  return function()
    at = at % #writes + 1
    return writes[at]
  end
end

-- The number is split: heads end with its first digits, tails begin with its last three.
local function byHalves(kind, count, pipelining)
  local width = tonumber(string.match(kind.body, "%%0(%d+)d"))
  local placeholder = string.rep("#", width)
  local whole = wrk.format(nil, kind.path, nil, (string.gsub(kind.body, "%%0%d+d", placeholder)))
  local first, last = string.find(whole, placeholder, 1, true)
  local heads, tails = {}, {}
  for i = 0, count / HALVES - 1 do
    local digits = string.format("%0" .. width - 3 .. "d", i)
    heads[i] = string.sub(whole, 1, first - 1) .. digits
  end
  for i = 0, HALVES - 1 do
    tails[i] = string.format("%03d", i) .. string.sub(whole, last + 1)
  end
  local number = numbers(count)
  local pieces = {}
  return function()
    for i = 1, 2 * pipelining, 2 do
      local n = number()
      pieces[i], pieces[i + 1] = heads[math.floor(n / HALVES)], tails[n % HALVES]
    end
    return table.concat(pieces)
  end
end

function init(args)
  if args[1] == nil then
    request = nil
    return
  end
  local count, pipelining = tonumber(args[2]), tonumber(args[3])
  wrk.method = "POST"
  wrk.headers["Authorization"] = "Bearer " .. args[1]
  wrk.headers["Content-Type"] = "application/json"
  local kinds = {}
  for i = 4, #args, 3 do
    local header = args[i + 2] ~= "" and args[i + 2] or nil
    table.insert(kinds, { path = args[i], body = args[i + 1], header = header })
  end
  if count > WHOLE_MAX then
    request = byHalves(kinds[1], count, pipelining)
  else
    request = prebuilt(kinds, count, pipelining)
  end
end

function request() end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50":%d,"p99":%d,"p999":%d,"max":%d,"errors":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max,
    e.connect + e.read + e.write + e.status + e.timeout))
end
