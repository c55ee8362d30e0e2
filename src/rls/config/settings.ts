/** The only declaration of the settings of the rate limit service. Threads get `RlsSettings`. */

import Type from 'typebox';
import { RLS_THREADS_MAX } from '../../core/constants.ts';
import {
  choice,
  type Explanation,
  flag,
  integer,
  path,
  socketMode,
  socketPath,
  text,
} from '../../core/setting.ts';

const GROUP = 'Rate limit service' satisfies Explanation['group'];

/** Which response headers a gateway adds for its client. */
const RLS_HEADERS = ['none', 'ietf', 'legacy'] as const;
/** What a denied descriptor means for the counters of its request. */
const RLS_COUNTING = ['each', 'all-or-none'] as const;

export const RLS_SETTINGS = {
  rlsPort: Type.Optional(
    integer({
      minimum: 0,
      maximum: 65_535,
      group: GROUP,
      description:
        "port for Envoy's rate limit service (gRPC), without a key; 0 selects a free one",
      details:
        'The service is off by default. It requires `WEIR_RLS_CONFIG`. See [Envoy rate limit ' +
        'service](envoy-rate-limit-service.md).',
      examples: [8081],
      isInChart: false,
    }),
  ),
  rlsHost: text({
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    group: GROUP,
    description: 'address of WEIR_RLS_PORT',
    details:
      'The service needs no key. An address that other machines reach requires ' +
      '`WEIR_RLS_TLS_CLIENT_CA`, or `WEIR_RLS_OPEN=true`.',
    examples: ['0.0.0.0'],
    isInChart: false,
  }),
  rlsOpen: flag({
    group: GROUP,
    description: 'whether every client that reaches WEIR_RLS_HOST may use the service',
    details: 'Set it only if a network policy or a firewall admits gateways alone.',
  }),
  rlsSocket: socketPath({
    group: GROUP,
    description: "Unix socket for Envoy's rate limit service, without a key",
    details: 'weir removes the socket when it stops.',
    examples: ['/run/weir/rls.sock'],
  }),
  rlsSocketMode: socketMode({
    group: GROUP,
    description: 'permissions of WEIR_RLS_SOCKET: owner, group, others',
  }),
  rlsJsonPort: Type.Optional(
    integer({
      minimum: 0,
      maximum: 65_535,
      group: GROUP,
      description: 'port for /json of the rate limit service, over HTTP/1.1 at WEIR_RLS_HOST',
      details: 'With `WEIR_RLS_TLS_CERT`, `/json` is on `WEIR_RLS_PORT`, and this is an error.',
      examples: [8080],
      isInChart: false,
    }),
  ),
  rlsTlsCert: path({
    group: GROUP,
    description: 'certificate chain in PEM, which enables TLS on WEIR_RLS_PORT; read on SIGHUP',
    details: 'It requires `WEIR_RLS_TLS_KEY`.',
    examples: ['/etc/weir/rls.crt'],
  }),
  rlsTlsKey: path({
    group: GROUP,
    description: 'private key of WEIR_RLS_TLS_CERT in PEM, without a passphrase',
    details: 'It requires `WEIR_RLS_TLS_CERT`. weir reads the file again on SIGHUP.',
    examples: ['/etc/weir/rls.key'],
  }),
  rlsTlsClientCa: path({
    group: GROUP,
    description: 'certificates in PEM that sign those of clients, each of which must have one',
    details: 'It requires `WEIR_RLS_TLS_CERT`. weir reads the file again on SIGHUP.',
    examples: ['/etc/weir/gateways-ca.crt'],
  }),
  rlsConfig: path({
    group: GROUP,
    description: 'folder of configuration files in the YAML of envoyproxy/ratelimit',
    details:
      'weir reads it again when a file changes, and on SIGHUP. An invalid file keeps all rules ' +
      'as they were.',
    examples: ['/etc/weir/ratelimit'],
  }),
  rlsMergeDomains: flag({
    group: GROUP,
    description: 'whether several files may have rules of one domain',
    details: 'It is `MERGE_DOMAIN_CONFIG` of envoyproxy/ratelimit.',
  }),
  rlsCompatible: flag({
    group: GROUP,
    description: 'whether rules match as in envoyproxy/ratelimit, faults included',
    details: 'See [Compatible mode](envoy-rate-limit-service.md#compatible-mode).',
  }),
  rlsShadowMode: flag({
    group: GROUP,
    description: 'whether every request is allowed, while all is counted',
    details: 'It is `SHADOW_MODE` of envoyproxy/ratelimit.',
  }),
  rlsQuotaMode: flag({
    group: GROUP,
    description: 'whether all rules are in quota mode',
    details: 'It is `QUOTA_MODE` of envoyproxy/ratelimit.',
  }),
  rlsHeaders: choice({
    choices: RLS_HEADERS,
    default: 'none',
    group: GROUP,
    description: "headers for the gateway's client: RateLimit and Retry-After, or older ones",
    details:
      '`ietf`: `RateLimit-Policy`, `RateLimit`, and `Retry-After` if the request is denied. ' +
      '`legacy`: `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as ' +
      '`LIMIT_RESPONSE_HEADERS_ENABLED` of envoyproxy/ratelimit.',
  }),
  rlsDynamicMetadata: flag({
    group: GROUP,
    description: 'whether responses have dynamic metadata',
    details: 'It is `RESPONSE_DYNAMIC_METADATA` of envoyproxy/ratelimit.',
  }),
  rlsCounting: choice({
    choices: RLS_COUNTING,
    default: 'each',
    group: GROUP,
    description: 'whether each descriptor counts, or none if one of its request is denied',
    details:
      '`all-or-none` is close to `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT` of ' +
      'envoyproxy/ratelimit.',
  }),
  rlsThreads: integer({
    minimum: 1,
    maximum: RLS_THREADS_MAX,
    default: 1,
    group: GROUP,
    description: 'threads of the rate limit service',
    details: 'More than one requires Node 22.22. The kernel assigns each connection to one.',
    examples: [2],
  }),
};

/** Paths of PEM files. */
export interface RlsTlsFiles {
  cert: string;
  key: string;
  clientCa: string | undefined;
}

/** The settings of a service that is on. */
export interface RlsSettings {
  host: string;
  port: number | undefined;
  socket: string | undefined;
  socketMode: string;
  jsonPort: number | undefined;
  tls: RlsTlsFiles | undefined;
  /** The folder of its files. */
  config: string;
  mergesDomains: boolean;
  isCompatible: boolean;
  isShadow: boolean;
  isQuota: boolean;
  headers: (typeof RLS_HEADERS)[number];
  hasDynamicMetadata: boolean;
  counting: (typeof RLS_COUNTING)[number];
  threads: number;
}
