/**
 * Prints nginx.conf for nginx 1.22 or later. `auth_request` allows a request on a 2xx and denies it
 * on a 403, which `error_page` turns into a 429. If weir is stopped or late, the location of the
 * check handles the 502 or 504. Any other response of weir makes the request itself a 500, which
 * nginx logs and `location /` handles. Both cases apply onError. A request head that weir rejects
 * is always denied: with `onError: allow` a client could otherwise bypass the limit.
 */

import { StartError } from '../../core/errors.ts';
import type { Policy } from '../../policies/policy.ts';
import { quotaExceeded, reducedCapacity } from '../../policies/quota.ts';
import { identifyingHeaders, identifyingNames, indentLines, quotaHeaders } from './common.ts';
import { CONNECTIONS_MAX, type GatewaySetup, TIMEOUT_MS, type WeirAddress } from './setup.ts';

/** Header names for which nginx has a variable and which it does not drop. */
const PLAIN_NAME = /^[a-z0-9-]+$/i;
/** Matches the status of the check: empty without a check, 20x if weir allowed the request. */
const NOT_DENIED = '"^(20.)?$"';
/** weir does not respond to a request head with one of these characters. */
const CONTROL_CHARACTERS = '[\\x00-\\x08\\x0a-\\x1f]';

/** @throws StartError if the policy reads a header that nginx drops */
export function nginx({ policy, weir, listenPort, upstream }: GatewaySetup): string {
  const { namespace, onError } = policy;
  const names = quotaHeaders(policy);
  const addHeaders = names.map((name) => `add_header ${name} ${responseVariable(name)} always;`);
  const headers = identifyingHeaders(policy);
  const dropped = headers.find((name) => !PLAIN_NAME.test(name));
  if (dropped !== undefined) {
    throw new StartError(
      `nginx accepts header names of letters, digits and "-" only; the policy looks at` +
        ` ${JSON.stringify(dropped)}`,
    );
  }
  return `\
# For nginx 1.22 or later: checks each request with the policy ${namespace} of weir.
# To try it: mkdir nginx && nginx -p nginx -c "$PWD/nginx.conf" -g 'daemon off;'

worker_processes auto;
worker_rlimit_nofile 16384;
pid nginx.pid;
error_log stderr;

events {
  # A request uses up to three connections: from the client, to weir and to the application.
  worker_connections 8192;
}

http {
  access_log off;
  client_body_temp_path client_body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;

  upstream weir {
    server ${weirUpstream(weir)} max_fails=0;
    # For each process. With fewer kept connections a flood connects again for each check.
    keepalive ${CONNECTIONS_MAX};
    # Shorter than the 10 s after which weir closes an idle connection.
    keepalive_timeout 5s;
  }

  upstream application {
    server ${upstream.host}:${upstream.port};
    keepalive 64;
    # Shorter than the 5 s after which Node.js closes an idle connection.
    keepalive_timeout 4s;
  }

  # For a denial by weir; or, if empty, for a denial because weir has not decided.
  map ${responseVariable('Retry-After')} $retry_after {
    default ${responseVariable('Retry-After')};
    "" 1;
  }
  map ${responseVariable('RateLimit')} $problem {
    default '${quotaExceeded()}';
    "" '${reducedCapacity()}';
  }

  # A request of HTTP/1.0 may have no Host; one of HTTP/1.1 must have it.
  map $http_host $request_host {
    default $http_host;
    "" $proxy_host;
  }

  # Allow upgrades to WebSocket only: over another protocol a client could bypass weir.
  map $http_upgrade $upgrade {
    default "";
    "~*^websocket$" websocket;
  }
  map $upgrade $connection_header {
    default "";
    websocket upgrade;
  }

  server {
    listen ${listenPort};
    # Room for large cookies, but less than the 32 KiB that weir accepts.
    large_client_header_buffers 2 15k;${indentLines('    ', controlCharacterRules(policy))}

    # Headers for the application; the location of the check has its own.
    proxy_http_version 1.1;
    proxy_set_header Upgrade $upgrade;
    proxy_set_header Connection $connection_header;
    proxy_set_header Host $request_host;
    proxy_set_header X-Forwarded-For ${forwardedFor(policy)};
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Weir-Key "";${indentLines(
      '    ',
      headers.length > 0 ? ['# Send the application the same value that weir counts.'] : [],
      headers.map((name) => `proxy_set_header ${name} $http_${variableName(name)};`),
    )}

    location / {
      auth_request /_weir;${indentLines(
        '      ',
        [...names, 'Retry-After'].map((name) => {
          return `auth_request_set ${responseVariable(name)} $upstream_http_${variableName(name)};`;
        }),
        ['auth_request_set $weir_status $status;'],
        names.map((name) => `proxy_hide_header ${name};`),
        addHeaders,
      )}
      # Does not apply to responses of the application.
      error_page 403 = @denied;
      # weir sent an unexpected response; the error log has its status.
      error_page 500 = ${onError === 'allow' ? '@allowed' : '@denied'};
      proxy_pass http://application;
    }

    location = /_weir {
      internal;
      proxy_pass http://weir/v1/auth-request/${namespace};
      proxy_method HEAD;
      proxy_pass_request_body off;
      # The check does not send the body: location / limits its size.
      client_max_body_size 0;
      proxy_set_header Content-Length "";
      proxy_set_header Connection "";
      # weir receives only what identifies the client${cookiesComment(policy)}.
      proxy_pass_request_headers off;${indentLines('      ', identityLines(policy), keyLines(weir))}
      # A flood delays responses on a busy machine by less.
      proxy_connect_timeout ${TIMEOUT_MS}ms;
      proxy_send_timeout ${TIMEOUT_MS}ms;
      proxy_read_timeout ${TIMEOUT_MS}ms;
      # A response of weir names the namespace twice for each of up to 8 windows.
      proxy_buffer_size 12k;
      # weir may have counted a check that failed: do not repeat it.
      proxy_next_upstream off;
      # weir is stopped or late.
      error_page 502 504 = @weir_failed;
      # weir answers 401 to an invalid key; auth_request would return it to the client.
      proxy_intercept_errors on;
      error_page 401 = @invalid_key;
      # weir rejected the request head. The client caused that, so onError does not apply.
      error_page 400 413 431 505 = @invalid_head;
    }

    location @invalid_head {
      return 403;
    }

    location @weir_failed {
      # onError: ${onError}.
      return ${onError === 'allow' ? 204 : 403};
    }

    location @invalid_key {
      return 500;
    }

    location @denied {
      # Without a check, or if weir allowed the request, nginx denied it, for example by "deny all".
      if ($weir_status ~ ${NOT_DENIED}) {
        # nginx sends no empty header; this one only replaces the headers below.
        add_header Retry-After "";
        return 403;
      }
      default_type application/problem+json;
      add_header Retry-After $retry_after always;
      add_header Cache-Control no-store always;${indentLines('      ', addHeaders)}
      return 429 $problem;
    }${indentLines('    ', onError === 'allow' ? ['', ...ALLOWED_LOCATION] : [])}
  }
}
`;
}

const ALLOWED_LOCATION = [
  'location @allowed {',
  '  # weir did not fail: nginx itself did.',
  `  if ($weir_status ~ ${NOT_DENIED}) { return 500; }`,
  '  proxy_pass http://application;',
  '}',
];

const variableName = (header: string) => header.toLowerCase().replaceAll('-', '_');
/** The variable that holds a header of weir's response. */
const responseVariable = (header: string) => `$weir_${variableName(header)}`;

/** Rejects control characters in the headers that the check sends to weir. */
function controlCharacterRules(policy: Policy): string[] {
  const names = identifyingHeaders(policy);
  if (policy.trustedHops > 1 && policy.identify.includes('ip')) names.push('x-forwarded-for');
  if (names.length === 0) return [];
  return [
    '# weir does not respond to a request head with control characters.',
    ...names.map(
      (name) => `if ($http_${variableName(name)} ~ "${CONTROL_CHARACTERS}") { return 400; }`,
    ),
  ];
}

/** The address of the connection; with proxies in front, appended to what they have set. */
function forwardedFor({ trustedHops }: Policy): string {
  return trustedHops === 1 ? '$remote_addr' : '$proxy_add_x_forwarded_for';
}

/** nginx cannot select a cookie: its variables ignore the case of a name and exclude dots. */
function cookiesComment(policy: Policy): string {
  return identifyingNames(policy, 'cookie').length > 0 ? ', and all cookies' : '';
}

/** Headers of the check that identify the client. */
function identityLines(policy: Policy): string[] {
  const { identify } = policy;
  const headers = identifyingHeaders(policy).map((name) => `${name} $http_${variableName(name)}`);
  if (identify.includes('ip')) headers.push(`X-Forwarded-For ${forwardedFor(policy)}`);
  if (identify.includes('method')) headers.push('X-Forwarded-Method $request_method');
  if (identify.includes('path')) headers.push('X-Forwarded-Uri $request_uri');
  return headers.map((header) => `proxy_set_header ${header};`);
}

function keyLines(weir: WeirAddress): string[] {
  if (!weir.needsKey) return ['proxy_set_header X-Weir-Key "";'];
  return [
    '# Replace the variable by a key of weir with the permission limit; otherwise nginx does not',
    '# start. Allow only nginx to read this file.',
    'proxy_set_header X-Weir-Key "$key_of_weir";',
  ];
}

function weirUpstream(weir: WeirAddress): string {
  if ('socket' in weir) return `"unix:${weir.socket.replace(/["\\]/g, '\\$&')}"`;
  return `${weir.host}:${weir.port}`;
}
