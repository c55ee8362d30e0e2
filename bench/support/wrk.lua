-- Checks for wrk: wrk -s wrk.lua URL -- KEY COUNT PIPELINING PATH BODY HEADER [PATH BODY HEADER]...
-- BODY has a %d, or a %07d for requests of one length, for the number of each identifier, of which
-- there are COUNT; HEADER, if any, is what X-Identifier says, with that number as well. Of several
-- the requests come in turn; PIPELINING of them are written at once, which wrk takes for as many
-- and times together. With nothing behind the URL wrk sends GETs, as it does without a script. Says
-- its figures as one line of JSON.

-- Whole requests are made beforehand for so many identifiers; beyond that, their halves are.
local WHOLE_MOST = 20000
local HALVES = 1000

local writes = {}
local at = 0

local function fill(text, number)
  return (string.gsub(text, "%%0?%d*d", function(format)
    return string.format(format, number())
  end))
end

-- In no order of the identifiers.
local function numbers(count)
  local used = 0
  return function()
    used = used + 1
    return (used * 7919) % count
  end
end

local function requestsOf(kind, count)
  local following, used, last = numbers(count), 0, 0
  local function number()
    used = used + 1
    last = following()
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
  local ofKinds, most = {}, 0
  for i, kind in ipairs(kinds) do
    ofKinds[i] = requestsOf(kind, count)
    most = math.max(most, #ofKinds[i])
  end
  local inTurn = {}
  for i = 0, most - 1 do
    for _, requests in ipairs(ofKinds) do
      table.insert(inTurn, requests[i % #requests + 1])
    end
  end
  -- As many as are written at once, the last ones with some of the first.
  for first = 1, #inTurn, pipelining do
    local together = {}
    for i = 0, pipelining - 1 do together[i + 1] = inTurn[(first + i - 1) % #inTurn + 1] end
    table.insert(writes, table.concat(together))
  end
  return function()
    at = at % #writes + 1
    return writes[at]
  end
end

-- Each head ends, and each tail begins, amid the number.
local function byHalves(kind, count, pipelining)
  local width = tonumber(string.match(kind.body, "%%0(%d+)d"))
  local mark = string.rep("#", width)
  local whole = wrk.format(nil, kind.path, nil, (string.gsub(kind.body, "%%0%d+d", mark)))
  local first, last = string.find(whole, mark, 1, true)
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
  if count > WHOLE_MOST then
    request = byHalves(kinds[1], count, pipelining)
  else
    request = prebuilt(kinds, count, pipelining)
  end
end

function request() end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50":%d,"p99":%d,"p999":%d,"errors":%d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    e.connect + e.read + e.write + e.status + e.timeout))
end
