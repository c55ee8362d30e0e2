/**
 * For each alert, series with which it fires, and the summary that it then has. The value of a
 * series is a sample for each minute, in the notation of promtool: `0+60x90`.
 */

export interface AlertCase {
  series: Readonly<Record<string, string>>;
  /** Labels of the alert except `severity` and `job`. */
  labels: Readonly<Record<string, string>>;
  summary: string;
}

const A = { instance: 'a:7071' };
const CHECKS = 'weir_decisions_total{namespace="login", outcome="allowed"}';

/** A case of the server `a`, unless the labels say otherwise. */
function firing(
  series: AlertCase['series'],
  summary: string,
  labels: AlertCase['labels'] = A,
): AlertCase {
  return { series, labels, summary };
}

/** A counter of one server that changes once. Its labels are those of the alert. */
function once(counter: string, summary: string): AlertCase {
  const labels = [...counter.matchAll(/(\w+)="(\w+)"/g)].map(([, name, value]) => [name, value]);
  return firing({ [counter]: '0x42 1x30' }, summary, { ...A, ...Object.fromEntries(labels) });
}

/** The buckets of a histogram in which every fifth value is in the last one. */
function slow(histogram: string): AlertCase['series'] {
  return {
    [`${histogram}_bucket{le="0.01"}`]: '0+48x90',
    [`${histogram}_bucket{le="0.05"}`]: '0+60x90',
    [`${histogram}_bucket{le="+Inf"}`]: '0+60x90',
  };
}

export const ALERT_CASES: Readonly<Record<string, AlertCase>> = {
  WeirDown: firing({ up: '1x35 0x30' }, 'Prometheus cannot scrape weir at a:7071'),
  WeirNamespaceDenies: firing(
    {
      [CHECKS]: '0+4200x90',
      'weir_decisions_total{namespace="login", outcome="denied"}': '0+1800x90',
    },
    'Namespace login denies 30% of its checks',
    { namespace: 'login' },
  ),
  WeirLiveEvictions: once('weir_live_evictions_total', 'a:7071 evicted live counters'),
  WeirTableFull: once(
    'weir_full_table_decisions_total{decision="deny"}',
    'a:7071 had no slot for new counters',
  ),
  WeirHoldsFull: once(
    'weir_full_hold_decisions_total{decision="deny"}',
    'a:7071 had no room for reservations or leases',
  ),
  WeirTableNearlyFull: firing(
    { weir_counters_live: '900x90', weir_counters_capacity: '1000x90' },
    'a:7071 uses 90% of its table',
  ),
  WeirShedding: firing(
    { 'weir_shed_total{reason="connections"}': '0+6x90' },
    'a:7071 rejects requests: bound on connections',
    { ...A, reason: 'connections' },
  ),
  WeirConnectionsNearBound: firing(
    { weir_connections: '900x90', weir_connections_capacity: '1000x90' },
    'a:7071 uses 90% of its connections',
  ),
  WeirInternalErrors: once(
    'weir_errors_total{status="500", code="INTERNAL_SERVER_ERROR"}',
    'a:7071 failed in requests: INTERNAL_SERVER_ERROR',
  ),
  WeirUnavailable: firing(
    { 'weir_errors_total{status="503", code="SERVICE_UNAVAILABLE"}': '0+6x90' },
    'a:7071 responds with 503',
  ),
  WeirGatewayFailures: once(
    'weir_gateway_failures_total{decision="allow"}',
    'a:7071 failed in gateway checks: allow',
  ),
  WeirGatewayMisconfigured: firing(
    { 'weir_errors_total{status="401", code="UNAUTHORIZED"}': '0+120x90' },
    'weir rejects clients: UNAUTHORIZED',
    { code: 'UNAUTHORIZED' },
  ),
  WeirWorkersMissing: firing(
    { weir_workers_running: '4x35 3x30' },
    'a:7071 has only 3 responsive shard workers',
  ),
  WeirWorkersReplaced: once('weir_workers_replaced_total', 'a:7071 replaced a shard worker'),
  WeirQueueEntriesLost: once(
    'weir_queue_entries_lost_total',
    'a:7071 dropped entries of its queues',
  ),
  WeirCheckpointsFail: firing(
    { weir_checkpoint_failures_total: '0+16x90' },
    'a:7071 cannot write its counters',
  ),
  WeirCheckpointsOld: firing(
    { weir_checkpoint_age_seconds: '90x90' },
    'a:7071 last wrote its counters 1m 30s ago',
  ),
  WeirAnalyticsNotWritten: firing(
    { weir_analytics_write_failures_total: '0+1x90' },
    'a:7071 cannot write its analytics',
  ),
  WeirEventsDropped: firing(
    { 'weir_events_total{outcome="dropped"}': '0+5x90' },
    'a:7071 drops events of decisions',
    { ...A, outcome: 'dropped' },
  ),
  WeirRateLimitRulesInvalid: firing(
    { weir_rls_rules_current: '1x35 0x55' },
    'a:7071 applies old rules of the rate limit service',
  ),
  WeirClockOffset: firing(
    { weir_clock_offset_seconds: '120x90' },
    'a:7071 is 2m 0s off the system clock',
  ),
  WeirSlow: firing(slow('weir_check_duration_seconds'), 'a:7071 needs 48ms for a check'),
  WeirUnidentified: firing(
    { 'weir_unidentified_checks_total{namespace="login"}': '0+120x90' },
    'Checks of namespace login lack a part of their identity',
    { namespace: 'login' },
  ),
  WeirCpuBound: firing({ process_cpu_seconds_total: '0+114x90' }, 'a:7071 uses 1.9 cores'),
  WeirRedisDown: firing(
    { 'weir_redis_connected{worker="1"}': '1x35 0x30' },
    'Shard worker 1 of a:7071 cannot use Redis',
    { ...A, worker: '1' },
  ),
  WeirEngineDown: once(
    'weir_engine_down_decisions_total{outcome="allowed"}',
    'a:7071 decided checks without Redis: allowed',
  ),
  WeirRedisFlaps: firing(
    { weir_redis_breaker_openings_total: '0+1x90' },
    'a:7071 loses Redis again and again',
  ),
  WeirRedisCallsFail: firing(
    { weir_redis_calls_total: '0+6000x90', weir_redis_call_failures_total: '0+300x90' },
    '5% of the calls of a:7071 fail',
  ),
  WeirRedisErrors: firing(
    { 'weir_redis_errors_total{kind="outOfMemory"}': '0+6x90' },
    'Redis refuses calls of a:7071: outOfMemory',
    { ...A, kind: 'outOfMemory' },
  ),
  WeirRedisClockBack: firing(
    { weir_redis_clock_lag_seconds: '90x90' },
    'Redis is 1m 30s behind the windows of a:7071',
  ),
  WeirRedisClockDiffers: firing(
    { weir_redis_clock_offset_seconds: '-60x90' },
    'a:7071 and Redis differ by 1m 0s',
  ),
  WeirRedisSlow: firing(slow('weir_redis_call_duration_seconds'), 'a:7071 waits 48ms for Redis'),
  WeirRedisBusy: firing(
    { weir_redis_calls_total: '0+1500000x90' },
    'weir sends 25k calls a second to Redis',
    {},
  ),
  WeirCallsPerCheck: firing(
    { [CHECKS]: '0+12000x90', weir_redis_calls_total: '0+18000x90' },
    'weir calls Redis 1.5 times for each check',
    {},
  ),
  WeirTokenRequests: firing(
    { [CHECKS]: '0+12000x90', weir_token_requests_total: '0+18000x90' },
    'weir requests tokens 1.5 times for each check',
    {},
  ),
  WeirNoLeases: firing(
    { weir_leases_granted_total: '0x90', weir_token_requests_total: '0+1200x90' },
    'Redis grants no leases to weir',
    {},
  ),
  WeirLeasesReturned: firing(
    {
      weir_returned_tokens_total: '0+6000x90',
      weir_leased_tokens_total: '0+8000x90',
      weir_leases_returned_total: '0+120x90',
    },
    'weir returns 75% of its leased tokens',
    {},
  ),
  WeirLeasesRecalled: firing(
    { weir_leases_recalled_total: '0+60x90', weir_leases_granted_total: '0+80x90' },
    '75% of the leases of weir are recalled',
    {},
  ),
  WeirLeasesWrittenOff: once(
    'weir_leases_written_off_total',
    'a:7071 wrote off leases of another machine',
  ),
  WeirUnprovenDenials: firing(
    { 'weir_unproven_denials_total{cause="recall"}': '0+6x90' },
    'a:7071 denied checks that may have been within their limit',
  ),
  WeirRecovering: firing(
    { weir_cluster_recovering: '0x42 1x30' },
    'a:7071 waits for machines: Redis lost counters',
  ),
  WeirRecoveryDenials: once(
    'weir_unproven_denials_total{cause="recovery"}',
    'a:7071 denied checks in a recovery',
  ),
  WeirRecovered: once(
    'weir_recoveries_total{outcome="complete"}',
    'a:7071 ended a recovery: complete',
  ),
  WeirOverLimit: firing(
    { weir_tokens_possibly_over_limit_total: '0x42 120x30' },
    'weir may be over its limits by 120 tokens',
    {},
  ),
  WeirNotJoined: firing({ weir_cluster_joined: '1x35 0x30' }, 'a:7071 gets no tokens from Redis'),
  WeirMachinesMissing: firing(
    { weir_cluster_machines: '5x25 4x45' },
    'a:7071 sees only 4 machines',
  ),
  WeirRegistryOld: firing(
    { weir_registry_age_seconds: '30x90' },
    'a:7071 cannot read the registry in Redis',
  ),
  WeirRegistryBehind: firing(
    { weir_registry_version: '40x90', 'weir_registry_version{instance="b:7071"}': '41x90' },
    'a:7071 uses an older registry than another machine',
  ),
};
