/**
 * The bounds that several modules share, or that depend on each other. Nothing changes at run time.
 * A contradiction between two bounds stops the process when it loads this file. Characters are
 * Unicode code points.
 */

/** The largest limit, cost and usage. As a double, a sum of two still exceeds either of them. */
export const AMOUNT_MAX = Number.MAX_SAFE_INTEGER;

export const IDENTIFIER_MAX_CHARACTERS = 512;
export const NAMESPACE_MAX_CHARACTERS = 512;
export const NAMESPACES_MAX = 10_000;
/** Deleted namespaces that are remembered, so that their counters are not found again. */
export const DELETED_NAMESPACES_MAX = NAMESPACES_MAX;
/** A text with this prefix is the id of a namespace, never a name. */
export const NAMESPACE_ID_PREFIX = 'rlns_';

export const DURATION_MIN_MS = 1_000;
/** 100 years of 365.25 days. */
export const DURATION_MAX_MS = 3_155_760_000_000;
/** The longest text that is looked up as the id of a hold. Ids are shorter. */
export const HOLD_ID_MAX_CHARACTERS = 64;
/** The longest duration of a check of v2: 30 days. */
export const V2_DURATION_MAX_MS = 2_592_000_000;

/** Records of reservations and leases. The number of one and its shard fit 32 bits. */
export const HOLDS_MIN = 1_024;
export const HOLDS_DEFAULT = 131_072;
export const HOLDS_MAX = 16_777_216;
/** How long a hold may live without a renewal, and how long a hold that has ended is known. */
export const HOLD_TTL_MIN_MS = 1_000;
export const HOLD_TTL_MAX_MS = 86_400_000;
export const ENDED_HOLD_MS = 600_000;
/** How far the stored lease horizon moves beyond the lease that needs it. */
export const LEASE_HORIZON_STEP_MS = 10_000;
/** After a failed write of the lease horizon, the disk is left alone for so long. */
export const LEASE_HORIZON_RETRY_MS = 1_000;
/** Checks of one reservation. */
export const RESERVED_CHECKS_MAX = 16;
/**
 * Answers to allowed requests with a `requestId` that are stored, and for how long. Each shard has
 * its share of them.
 */
export const REQUEST_IDS_MAX = 65_536;
export const REQUEST_ID_MS = 60_000;
export const REQUEST_ID_MAX_CHARACTERS = 64;
/** Live holds of an identifier that an inspection lists. */
export const LISTED_HOLDS_MAX = 100;

/** Overrides without a wildcard, and with one or a CIDR block. */
export const EXACT_OVERRIDES_MAX = 100_000;
export const WILDCARD_OVERRIDES_MAX = 10_000;
/**
 * Overrides of a namespace whose identifier has text between two wildcards. Those of all namespace
 * patterns together count as of one namespace. Namespace patterns that have text between two
 * wildcards are limited by it too. A check takes some steps for each of them.
 */
export const INFIX_OVERRIDES_MAX = 256;
/** The longest text between the wildcards of `*text*` that is not counted as such. */
export const MIDDLE_MAX_CHARACTERS = 32;
/**
 * Rows in which acceptors count the use of overrides. One group commit may replace all overrides:
 * the rows of the deleted ones are free only when no acceptor counts in them any more.
 */
export const USAGE_ROWS = 2 * (EXACT_OVERRIDES_MAX + WILDCARD_OVERRIDES_MAX);
/** The window of a check that is denied by a block: a client may try again in the next one. */
export const BLOCK_WINDOW_MS = 60_000;
export const BLOCK_REASON_MAX_CHARACTERS = 200;
/** The begin of the id of a block, by which its recorded decisions are told from others. */
export const BLOCK_ID_PREFIX = 'rlor_b10cb10c';
/** Overrides that match a check and do not apply, as an explanation shows them. */
export const EXPLAINED_OVERRIDES_MAX = 20;
/** Gateway policies, windows of a policy, and parts of an identity. */
export const POLICIES_MAX = 1_000;
export const POLICY_WINDOWS_MAX = 8;
export const IDENTITY_PARTS_MAX = 8;
/** Requests that a policy skips. */
export const POLICY_SKIPS_MAX = 64;
export const SKIP_PATH_MAX_CHARACTERS = 512;
/** Tokens of identity providers have a few thousand characters. */
export const IDENTIFIER_PART_MAX_CHARACTERS = 8_192;
/** Proxies in a chain whose X-Forwarded-For is trusted. */
export const TRUSTED_HOPS_MAX = 32;

/** Wildcards in the namespace and in the identifier of an override. */
export const WILDCARDS_PER_TEXT_MAX = 16;
/** The shortest identifier of an override in v1. */
export const OVERRIDE_IDENTIFIER_MIN_CHARACTERS = 3;

export const BODY_MAX_BYTES = 65_536;
/** Checks in one multiLimit request. */
export const MULTI_LIMIT_MAX = 100;
export const MULTI_LIMIT_MAX_BYTES = 1_048_576;
/** JSON values in such a request; a valid one has a few thousand at most. */
export const MULTI_LIMIT_VALUES_MAX = 10_000;
/** The longest response to it. It repeats names, and an escape turns one byte into six. */
export const RESPONSE_MAX_BYTES = 1_048_576;
/** The body of a request that imports overrides. */
export const IMPORT_MAX_BYTES = 1_048_576;
/** JSON values in such a request; the largest import of the shortest overrides has half as many. */
export const IMPORT_VALUES_MAX = 200_000;
/** Items in a page of a list; of v2 by default; and of an export. */
export const PAGE_MAX = 100;
export const V2_PAGE_DEFAULT = 50;
export const EXPORT_PAGE_MAX = 1_000;
export const RESOURCES_MAX = 32;
export const RESOURCE_TEXT_MAX_CHARACTERS = 512;

/** The shortest key in WEIR_ROOT_KEY, in characters: shorter keys can be guessed. */
export const ROOT_KEY_MIN_CHARACTERS = 16;
/** The longest API key of a request, in characters. */
export const KEY_MAX_CHARACTERS = 512;
export const KEYS_MAX = 1_000;
export const KEY_NAME_MAX_CHARACTERS = 256;
/** Permissions of one key. */
export const PERMISSIONS_MAX = 1_000;
/** Entries of the audit log. The store deletes older ones. */
export const AUDIT_ENTRIES_MAX = 10_000;
/** Entries of the audit log that a request with filters reads. */
export const AUDIT_SCANNED_MAX = 500;
/** Items that an entry of the audit log lists. They bound its size; the others are only counted. */
export const AUDIT_PERMISSIONS_MAX = 100;
export const AUDIT_NAMESPACES_MAX = 16;
/** Overrides that end, or are deleted with their namespace, in one group commit. */
export const REMOVED_OVERRIDES_MAX = 1_000;
/** Up to so many that end have an entry each in the audit log. More have one together. */
export const AUDITED_ENDS_MAX = 100;
/** Verified header values that an acceptor caches. */
export const VERIFIED_TOKENS_MAX = 4_096;

/** A request head. Gateways forward cookies, so it may be large. uWebSockets.js enforces it. */
export const REQUEST_HEAD_MAX_BYTES = 32_768;

/** The longest path of a Unix socket that the kernel accepts. */
export const SOCKET_PATH_MAX_BYTES = process.platform === 'linux' ? 107 : 103;

export const COUNTERS_MIN = 1_024;
export const COUNTERS_MAX = 16_777_216;
/** The default if memory suffices, and the smallest default. */
export const COUNTERS_DEFAULT_MAX = 1_048_576;
export const COUNTERS_DEFAULT_MIN = 4_096;
/** Slots of a table for each counter of its promised capacity. */
export const SLOTS_PER_COUNTER = 2;
/** Threads write to different cache lines. */
export const CACHE_LINE_BYTES = 64;
/**
 * Where the first whole cache line of a large buffer begins: the buffer is a mapping of its own, of
 * which the C library uses the first 16 bytes. In memory of another origin what should be in one
 * line is in two, which costs time only.
 */
export const FIRST_LINE_OFFSET = 48;
/** Each shard is a table in its own buffer. */
export const SHARDS = 16;

/** Entries of the queue from an acceptor to a shard worker. */
export const CHECK_QUEUE_ENTRIES = 1_024;
/** Entries of the queue back: all pending checks, and those that a worker's successor repeats. */
export const REPLY_QUEUE_ENTRIES = 2 * CHECK_QUEUE_ENTRIES;

/** Namespaces with metric series of their own; all others share one. */
export const METRIC_NAMESPACES_MAX = 100;

/** Namespaces whose identifiers an acceptor counts in an hour: 256 KiB of memory for each. */
export const ANALYTICS_NAMESPACES_MAX = 64;
/** Namespaces with figures of their own in a minute; all others share figures. */
export const ANALYTICS_MINUTE_NAMESPACES_MAX = 1_000;
/** Identifiers of a namespace and an hour that are stored, by denied checks and by tokens. */
export const ANALYTICS_IDENTIFIERS_MAX = 50;
/** Namespaces in a response, and points of a timeline: a day of minutes, and some more. */
export const ANALYTICS_NAMESPACES_PAGE_MAX = 1_000;
export const TIMELINE_POINTS_MAX = 1_500;
/** Hours that a query adds up: 31 days. The main thread reads all of their figures. */
export const ANALYTICS_QUERY_HOURS_MAX = 744;
/** Lists of identifiers, of a namespace and an hour, that a ranking of all namespaces reads. */
export const ANALYTICS_RANKED_RECORDS_MAX = 2_000;
/** Hours of analytics that a search for identifiers by prefix covers. */
export const ANALYTICS_SEARCHED_HOURS = 24;
/** Texts that one search compares with it, and all searches together in a turn of the loop. */
export const ANALYTICS_SEARCHED_TEXTS_MAX = 250_000;
export const ANALYTICS_SEARCHED_TEXTS_OF_TURN = 4_096;
/** Searches for identifiers that run at a time. More are rejected with 503. */
export const ANALYTICS_SEARCHES_MAX = 4;
/** Figures that wait for the database while it cannot be written. */
export const ANALYTICS_PENDING_MAX = 10_000;
/** How long figures may wait until they are written. */
export const ANALYTICS_INTERVAL_MS = 1_000;
/** The same for identifiers; a query writes those of its namespace before. */
export const ANALYTICS_IDENTIFIERS_INTERVAL_MS = 10_000;
/** Overrides whose use is written at once, at most. */
export const ANALYTICS_OVERRIDES_WRITTEN_MAX = 1_000;
/** The most minutes and hours that figures are kept for: 7 days, 400 days. */
export const ANALYTICS_MINUTES_MAX = 10_080;
export const ANALYTICS_HOURS_MAX = 9_600;

/** Events of an acceptor that are not in the file yet. Further ones are dropped. */
export const EVENT_RING_BYTES = 8_388_608;
/** Events that are written to the file at once, and how long fewer may wait. */
export const EVENT_CHUNK_BYTES = 262_144;
export const EVENT_INTERVAL_MS = 200;
/** The longest line of an event. */
export const EVENT_LINE_BYTES_MAX = 163_840;
/** Bounds of the size of a file of events, and of the number of rotated files. */
export const EVENT_FILE_MIB_MAX = 1_048_576;
export const EVENT_FILES_MAX = 1_000;
export const EVENT_SAMPLE_MAX = 1_000_000;

/** Recent decisions that a thread keeps, and the bytes of their texts. Powers of 2. */
export const RECENT_DECISIONS = 8_192;
export const RECENT_TEXT_BYTES = 1_048_576;
/** The time that the next quotas are for. Denials of an identifier in it are one record. */
export const RECENT_PERIOD_MS = 1_000;
/** Records of denials of a thread and of one namespace, and of samples of allowed checks. */
export const RECENT_DENIALS = 32;
export const RECENT_DENIALS_OF_NAMESPACE = 8;
export const RECENT_SAMPLES = 8;
/** The same of denials, with the first one of each namespace, which comes beside the quota. */
export const RECENT_DENIALS_MAX = 128;
/** Namespaces in which one request looks for an identifier. */
export const FOUND_NAMESPACES_MAX = 100;
/** Checks of an identifier in several windows count as made together within this time. */
export const RECENT_TOGETHER_MS = 10_000;

export const ACCEPTORS_MAX = 64;
export const WORKERS_MAX = SHARDS;
export const RLS_THREADS_MAX = 16;
/** Paths of limits with metrics of their own. Values in metrics would make them unbounded. */
export const RLS_HIT_PATHS_MAX = 1_000;
/** The longest such path. A longer one ends with its hash. */
export const RLS_PATH_MAX_CHARACTERS = 256;
export const RLS_HITS_INTERVAL_MS = 1_000;
/** The interval at which the files of rules are compared with those in use. */
export const RLS_POLL_MS = 500;
/** The longest request. 100 descriptors of a usual gateway have some 20 kB. */
export const RLS_MESSAGE_MAX_BYTES = 262_144;
/** Connections of each thread. A gateway opens one for each of its own threads. */
export const RLS_CONNECTIONS_MAX = 1_024;
export const DRAIN_MAX_MS = 600_000;

/** Changes that wait for a transaction, and the bytes of their requests. */
export const PENDING_CHANGES_MAX = 1_024;
export const PENDING_BYTES_MAX = 16 * IMPORT_MAX_BYTES;

/** Open connections. The limit of open files may lower it. */
export const CONNECTIONS_MAX = 1_000_000;
/** The share of connections reserved for gateways if they have a listener of their own. */
export const GATEWAY_CONNECTIONS_SHARE = 1 / 8;
/** Descriptors for everything but connections: process, threads, files and the admin port. */
export const RESERVED_DESCRIPTORS = 640;
export const RESERVED_DESCRIPTORS_PER_THREAD = 4;
/** Connections of the admin port (briefly twice as many), and those reserved for probes. */
export const ADMIN_CONNECTIONS_MAX = 256;
export const ADMIN_CONNECTIONS_FOR_PROBES = 16;
/** Timeout of an idle connection of the admin port, and of an incomplete request on it. */
export const ADMIN_REQUEST_TIMEOUT_MS = 5_000;

/** Sessions of the dashboard, and those of one key; a further one ends the oldest of the key. */
export const DASHBOARD_SESSIONS_MAX = 256;
export const DASHBOARD_SESSIONS_PER_KEY_MAX = 32;
/** A session ends after this time without a request or an event stream, and after the second. */
export const DASHBOARD_SESSION_IDLE_MS = 1_800_000;
export const DASHBOARD_SESSION_MAX_MS = 43_200_000;
/** Failed sign-ins in a second, of all clients. */
export const DASHBOARD_FAILED_SIGN_INS_PER_S = 10;
/** The name of a user whom a proxy in front of the dashboard has signed in. */
export const USER_NAME_MAX_CHARACTERS = 128;
/** The secret that this proxy sends. */
export const PROXY_SECRET_MIN_CHARACTERS = 32;
export const PROXY_SECRET_MAX_CHARACTERS = 512;
/** Events after which the stream of such a user is opened again, so that the proxy checks it. */
export const DASHBOARD_PROXIED_EVENTS_MAX = 60;
/** Event streams of the dashboard, one for a session, and the bytes that one may leave unread. */
export const DASHBOARD_STREAMS_MAX = 32;
export const DASHBOARD_STREAM_UNREAD_BYTES_MAX = 262_144;
/** The interval of the events. */
export const DASHBOARD_EVENT_INTERVAL_MS = 1_000;
/** Bodies of requests that the admin port buffers for the dashboard. */
export const DASHBOARD_BODY_BYTES_MAX = 4 * IMPORT_MAX_BYTES;

/** Operations of the dashboard on counters that wait for an acceptor, and how long they wait. */
export const PENDING_COUNTER_OPERATIONS_MAX = 64;
export const COUNTER_OPERATION_TIMEOUT_MS = 4_000;

/** Incomplete bodies that one acceptor buffers. */
export const BUFFERED_BODY_BYTES_MAX = 16 * IMPORT_MAX_BYTES;
/** Response bytes of one acceptor that clients have not read. */
export const UNSENT_RESPONSE_BYTES_MAX = 16 * RESPONSE_MAX_BYTES;

/**
 * Requests that an acceptor answers in one turn of its loop: so many, and more for each open
 * connection up to a number of them.
 */
export const TURN_REQUESTS = 512;
export const TURN_REQUESTS_PER_CONNECTION = 8;
export const TURN_CONNECTIONS_MAX = 64;
/** Lists of checks of one acceptor that continue in later turns: some 100 KB of memory each. */
export const LONG_REQUESTS_MAX = 256;

/** The weight of operations, bodies included, of one acceptor that wait for the main thread. */
export const PENDING_OPERATION_BYTES_MAX = 4 * IMPORT_MAX_BYTES;

/** Unknown fields of requests that a thread remembers, so that it reports each once. */
export const UNKNOWN_FIELDS_MAX = 1_024;
/** Those of one API key, and so of one request. */
export const UNKNOWN_FIELDS_PER_KEY_MAX = 16;

/** Error responses that an acceptor reports for the log at level debug. */
export const ERROR_REPORTS_PER_S = 10;

/** Timeout of the task that compiles overrides; it usually takes a few ms. */
export const COMPILE_TIMEOUT_MS = 2_000;

/** The interval of an acceptor's heartbeat, and of the main thread's test of it. */
export const HEARTBEAT_MS = 200;
/** An acceptor without a heartbeat in this time, in which it could run, is unresponsive. */
export const UNRESPONSIVE_MIN_MS = 1_000;
export const UNRESPONSIVE_DEFAULT_MS = 2_000;
export const UNRESPONSIVE_MAX_MS = 60_000;
/** The same for a shard worker, which must be replaced within a second if CPU is free. */
export const WORKER_HEARTBEAT_MS = 100;
export const WORKER_UNRESPONSIVE_MS = 500;
/** The same during disk access, which may be slow. Acceptors decide checks in place meanwhile. */
export const DISK_UNRESPONSIVE_MS = 5_000;
/** How long a pool thread may take to start its task. */
export const THREAD_BOOT_MS = 5_000;
/** The delay before a shard worker that failed immediately is replaced; it doubles each time. */
export const WORKER_BACKOFF_MS = { initial: 10, max: 1_000 } as const;

/** After this time an acceptor withdraws a check that its worker has not started. */
export const WITHDRAW_AFTER_MS = 25;
/** After this time a check that a failed worker had started gets a 503. */
export const CHECK_DEADLINE_MS = 2_000;

/** The interval of the sweeps that remove expired counters. */
export const SWEEP_INTERVAL_MS = 5_000;

/** For so long the latency of checks is kept, read at this interval. */
export const LATENCY_HISTORY_MS = 3_600_000;
export const LATENCY_HISTORY_STEP_MS = 1_000;

/** From this share of its capacity on, the table counts as nearly full. */
export const NEARLY_FULL_SHARE = 0.9;
/** For so long a server is degraded after the replacement of a shard worker. */
export const REPLACED_RECENTLY_MS = 600_000;
/** Faults that have ended are known for so long, and so many of them. */
export const PAST_FAULTS_MS = 86_400_000;
export const PAST_FAULTS_MAX = 32;
/**
 * A shorter one is not kept: while weir starts, a shard worker may not run for a moment. The watch
 * looks once a second.
 */
export const PAST_FAULT_MIN_MS = 1_500;
/** Two with the same reason and a shorter pause between them are kept as one. */
export const FAULT_PAUSE_MS = 60_000;

export const CHECKPOINT_INTERVAL_MIN_MS = 100;
export const CHECKPOINT_INTERVAL_MAX_MS = 3_600_000;
/** A checkpoint further ahead of the system clock was written under a wrong clock. */
export const CLOCK_AHEAD_MAX_MS = 172_800_000;

/** Hosts in WEIR_REDIS_URL, and its highest number of a database. */
export const REDIS_NODES_MAX = 64;
export const REDIS_DATABASE_MAX = 65_535;
export const REDIS_PASSWORD_MAX_CHARACTERS = 512;
export const REDIS_PREFIX_MAX_CHARACTERS = 64;
/** Replicas that a change can wait for. */
export const REDIS_WAIT_MAX = 5;
/** Bounds of the time after which a check that needs Redis is decided without it. */
export const REDIS_TIMEOUT_MIN_MS = 5;
export const REDIS_TIMEOUT_MAX_MS = 1_000;
/** A call of Redis without an answer fails after this time; a new connection after the second. */
export const REDIS_CALL_DEADLINE_MS = 50;
export const REDIS_CONNECT_DEADLINE_MS = 2_000;
/** Commands of one connection that wait for their answers. */
export const REDIS_PENDING_COMMANDS_MAX = 4_096;
/** A connection that is silent for two of these intervals, although asked, is given up. */
export const REDIS_KEEPALIVE_MS = 500;
/** How often Sentinels, and nodes of a cluster in trouble, are questioned about servers. */
export const REDIS_DISCOVERY_MS = 1_000;
/** The delay before Redis is tried again; it doubles each time. */
export const REDIS_BACKOFF_MS = { initial: 50, max: 500 } as const;
/** Failed calls in a row after which Redis counts as unavailable. */
export const REDIS_FAILURES_MAX = 5;
/** In a cluster counters are divided into so many buckets. Each lies in one hash slot. */
export const CLUSTER_BUCKETS = 64;
/** The interval at which usage is reported to Redis. */
export const SYNC_INTERVAL_MIN_MS = 10;
export const SYNC_INTERVAL_MAX_MS = 10_000;

/** How often the clock is compared with the system clock. */
export const CLOCK_TICK_MS = 100;

/** An identifier or a namespace: UTF-8 uses at most four bytes for a code point. */
export const NAME_MAX_BYTES = 4 * Math.max(IDENTIFIER_MAX_CHARACTERS, NAMESPACE_MAX_CHARACTERS);
/** The key of a namespace: its name and a number, see `namespaceKey`. */
export const NAMESPACE_KEY_MAX_BYTES = NAME_MAX_BYTES + 32;

/** Rate limit service: files of its folder, the bytes of one, and of all together. */
export const RLS_FILES_MAX = NAMESPACES_MAX;
export const RLS_FILE_MAX_BYTES = 4_194_304;
export const RLS_FOLDER_MAX_BYTES = 16_777_216;
/** Entries of its folder and of the folders in it, and how deeply these are nested. */
export const RLS_FOLDER_ENTRIES_MAX = 100_000;
export const RLS_FOLDER_DEPTH_MAX = 32;
/** Collections of YAML inside each other. The reader of YAML is recursive. */
export const RLS_YAML_DEPTH_MAX = 128;
/** Rules of all domains, and rules under each other, so that this is also the longest path. */
export const RLS_RULES_MAX = 100_000;
export const RLS_RULE_DEPTH_MAX = 32;
/** The `metadata` of a rule as JSON, its `raw_body`, and its `content_type`. */
export const RLS_METADATA_MAX_BYTES = 16_384;
export const RLS_RAW_BODY_MAX_BYTES = 16_384;
export const RLS_CONTENT_TYPE_MAX_CHARACTERS = 256;
/** The largest `requests_per_unit`: a uint32 of protobuf. */
export const RLS_REQUESTS_MAX = 4_294_967_295;
/*
 * The rate limit service.
 */

/** Descriptors of a request. They are one batch of the engine. */
export const RLS_DESCRIPTORS_MAX = MULTI_LIMIT_MAX;
/** Entries of a descriptor. Configurations have a few levels. */
export const RLS_ENTRIES_MAX = 64;
/** Keys and domains whose strings a thread reuses, and the longest of them. */
export const RLS_KNOWN_TEXTS = 512;
export const RLS_KNOWN_TEXT_MAX_BYTES = 64;
/** Nested groups of unknown fields, which no current schema has. */
export const PROTOBUF_GROUP_DEPTH_MAX = 32;

/** Open calls of a connection. Envoy multiplexes all requests of a worker over one. */
export const GRPC_STREAMS_MAX = 1_000;
/** The headers of a request, as HTTP/2 counts them. */
export const GRPC_HEADERS_MAX_BYTES = 16_384;
export const GRPC_HEADERS_MAX = 128;
/** Their bytes on the wire. With more, the connection closes: rejected ones are decoded, too. */
export const GRPC_HEADER_BLOCK_MAX_BYTES = 65_536;
/** Of the message of an error. Its encoding has up to nine bytes for a character. */
export const GRPC_ERROR_MESSAGE_MAX = 1_024;
/** What a client may send of a call, and on a connection, before this side has read of it. */
export const GRPC_WINDOW_BYTES = 1_048_576;
/**
 * Frames of one connection in a second that are no calls, messages or resets, and more for each
 * call: libraries open windows and measure round trips.
 */
export const GRPC_CONTROL_FRAMES_PER_S = 10_000;
export const GRPC_CONTROL_FRAMES_PER_CALL = 8;
/** SETTINGS counts as so many, because it may change the windows of all streams. */
export const GRPC_CONTROL_FRAMES_PER_SETTINGS = 100;
/**
 * Resets of calls of one connection at once, and then in each second, also those that a client
 * makes this side do. Envoy resets each call that takes longer than its timeout, so a slow moment
 * of the server may reset all of them.
 */
export const GRPC_RESET_BURST = 100_000;
export const GRPC_RESETS_PER_S = 20_000;
/** Calls whose frames are ignored because this side has reset them. */
export const GRPC_KNOWN_RESETS = 128;
/** Responses of a connection that its client has not read. Over it, the connection closes. */
export const GRPC_UNSENT_BYTES_MAX = 4_194_304;
/** Incomplete messages of all connections of a thread. */
export const GRPC_BUFFERED_BYTES_MAX = 16_777_216;
/** How long TLS, the preface and the settings of a new connection may take. */
export const GRPC_HANDSHAKE_TIMEOUT_MS = 10_000;
/** For a request of HTTP/1 on the same port with its response, and the pause before it. */
export const GRPC_HTTP1_TIMEOUT_MS = 10_000;
/** The interval of PINGs to each client. A connection with an unanswered one closes at the next. */
export const GRPC_KEEPALIVE_S = 30;
/** How long a client may take to close a connection that this side has ended. */
export const GRPC_END_TIMEOUT_S = 10;
/**
 * A connection that drains is closed so long after its client answered a PING, which says that it
 * has read the GOAWAY before; and how long the answer may take.
 */
export const GRPC_DRAIN_GRACE_MS = 100;
export const GRPC_DRAIN_PING_MS = 1_000;
/** Watch calls of the health service of a thread. */
export const GRPC_HEALTH_WATCHES_MAX = 256;
/** Rules that an explanation lists, and wildcards of a level that a validation compares. */
export const RLS_EXPLAINED_RULES_MAX = 20;
export const RLS_COMPARED_WILDCARDS_MAX = 256;

const INVARIANTS: readonly [boolean, string][] = [
  [NAME_MAX_BYTES * 2 < BODY_MAX_BYTES, 'a body has room for the longest namespace and identifier'],
  [
    PENDING_BYTES_MAX > IMPORT_MAX_BYTES && PENDING_OPERATION_BYTES_MAX > IMPORT_MAX_BYTES,
    'an import can be pending',
  ],
  [
    BUFFERED_BODY_BYTES_MAX > 2 * Math.max(IMPORT_MAX_BYTES, MULTI_LIMIT_MAX_BYTES),
    'a buffer can grow to the largest body, beside the buffer that it replaces',
  ],
  [UNSENT_RESPONSE_BYTES_MAX > RESPONSE_MAX_BYTES, 'the longest response can be unsent'],
  [RESERVED_DESCRIPTORS > 2 * ADMIN_CONNECTIONS_MAX, 'the admin port has descriptors'],
  [
    ADMIN_CONNECTIONS_FOR_PROBES < ADMIN_CONNECTIONS_MAX,
    'some connections of the admin port are for any path',
  ],
  [
    2 * DASHBOARD_STREAMS_MAX < ADMIN_CONNECTIONS_MAX - ADMIN_CONNECTIONS_FOR_PROBES,
    'event streams leave connections of the admin port for other requests',
  ],
  [
    DASHBOARD_EVENT_INTERVAL_MS < ADMIN_REQUEST_TIMEOUT_MS,
    'the admin port does not close an event stream as idle',
  ],
  [
    COUNTER_OPERATION_TIMEOUT_MS > CHECK_DEADLINE_MS &&
      COUNTER_OPERATION_TIMEOUT_MS < ADMIN_REQUEST_TIMEOUT_MS,
    'an operation on counters of the dashboard gets a response',
  ],
  [
    V2_DURATION_MAX_MS <= DURATION_MAX_MS && V2_PAGE_DEFAULT <= PAGE_MAX,
    'v2 accepts nothing that v1 rejects',
  ],
  [
    MULTI_LIMIT_MAX * 2 * NAME_MAX_BYTES < MULTI_LIMIT_MAX_BYTES,
    'a multiLimit request has room for the maximum of checks with the longest names',
  ],
  [
    MULTI_LIMIT_MAX * (2 * 6 * IDENTIFIER_MAX_CHARACTERS + 1_024) < RESPONSE_MAX_BYTES,
    'the response to a multiLimit request fits its buffer',
  ],
  [DURATION_MAX_MS * 2 < Number.MAX_SAFE_INTEGER, 'the end of the longest window is exact'],
  [DURATION_MIN_MS > CLOCK_TICK_MS * 2, 'a clock step is noticed within the shortest window'],
  [
    COUNTERS_MAX * SLOTS_PER_COUNTER * CACHE_LINE_BYTES <= 2 ** 31 * SHARDS,
    'the bytes of a shard are indexed by int32',
  ],
  [
    2 * BODY_MAX_BYTES + 6 * (IDENTIFIER_MAX_CHARACTERS + 2 * NAMESPACE_MAX_CHARACTERS) + 2_048 <
      EVENT_LINE_BYTES_MAX,
    'a line has room for the longest event, with meta and resources of the longest body',
  ],
  [EVENT_LINE_BYTES_MAX < EVENT_CHUNK_BYTES, 'a chunk has room for any line'],
  [EVENT_INTERVAL_MS % CLOCK_TICK_MS === 0, 'events are written when the clock ticks'],
  [EVENT_RING_BYTES > 2 * EVENT_CHUNK_BYTES, 'events can be added while a chunk is written'],
  [(EVENT_RING_BYTES & (EVENT_RING_BYTES - 1)) === 0, 'a ring of events is indexed with a mask'],
  [RECENT_PERIOD_MS % HEARTBEAT_MS === 0, 'the period of recent decisions ends with a heartbeat'],
  [
    (RECENT_DECISIONS & (RECENT_DECISIONS - 1)) === 0 &&
      (RECENT_TEXT_BYTES & (RECENT_TEXT_BYTES - 1)) === 0,
    'recent decisions and their texts are indexed with a mask',
  ],
  [POLICY_WINDOWS_MAX <= MULTI_LIMIT_MAX, 'the windows of a policy fit one batch'],
  [WORKERS_MAX <= SHARDS, 'every worker has a shard'],
  [REQUEST_IDS_MAX % SHARDS === 0, 'each shard stores as many answers as the others'],
  [
    RLS_FILES_MAX <= NAMESPACES_MAX,
    'each domain of the rate limit service, which has a file of its own, can be a namespace',
  ],
  [
    RLS_YAML_DEPTH_MAX > 2 * RLS_RULE_DEPTH_MAX + 32,
    'the deepest rule is a map in a list for each level, and has metadata',
  ],
  [(CHECK_QUEUE_ENTRIES & (CHECK_QUEUE_ENTRIES - 1)) === 0, 'a queue is indexed with a mask'],
  [REPLY_QUEUE_ENTRIES > CHECK_QUEUE_ENTRIES, 'the reply queue has room for all pending checks'],
  [
    WORKER_HEARTBEAT_MS < HEARTBEAT_MS && WORKER_UNRESPONSIVE_MS < UNRESPONSIVE_MIN_MS,
    'an unresponsive worker is replaced before an acceptor that waits for it is unresponsive',
  ],
  [
    WITHDRAW_AFTER_MS < WORKER_UNRESPONSIVE_MS && CHECK_DEADLINE_MS > 2 * WORKER_UNRESPONSIVE_MS,
    'checks are withdrawn from an unresponsive worker, and wait for its successor',
  ],
  [
    GRPC_HANDSHAKE_TIMEOUT_MS > GRPC_DRAIN_PING_MS + GRPC_DRAIN_GRACE_MS,
    'a connection that opens while the service drains is not the last to close',
  ],
];
for (const [isTrue, invariant] of INVARIANTS) {
  if (!isTrue) throw new Error(`constants.ts violates the invariant: ${invariant}`);
}
