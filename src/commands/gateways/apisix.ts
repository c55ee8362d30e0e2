/** Prints the configuration of APISIX: routes of its standalone mode, or plugin configs. */

import { GRPC_HEADERS } from '../../policies/grpc.ts';
import type { Policy } from '../../policies/policy.ts';
import {
  authority,
  checkTarget,
  clientHeaders,
  denialHeaders,
  describeRoutes,
  httpUrl,
  identifyingHeaders,
  indentLines,
  isWholeSite,
  listensEverywhere,
  plainName,
  protectsEveryPath,
  quotaHeaders,
  requireHostName,
  SYSTEM_CA_FILE,
  tcpOnlyError,
  yamlList,
} from './common.ts';
import {
  type GatewaySetup,
  type ListenAddress,
  type Route,
  TIMEOUT_MS,
  type Upstream,
  type WeirAddress,
} from './setup.ts';

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function apisix(setup: GatewaySetup): string {
  const { routes, listen, upstream } = setup;
  requireHostName('APISIX', upstream);
  const [{ policy }] = routes;
  const trusted = policy.trustedHops > 1 ? ', trusted_addresses: [<proxies in front>]' : '';
  const title = isWholeSite(routes)
    ? `Policy ${policy.namespace} of weir for APISIX 3.14 or later.`
    : `For APISIX 3.14 or later: ${describeRoutes(routes)}`;
  return `# ${title}
# This is conf/apisix.yaml of the standalone mode. conf/config.yaml must contain
#   apisix: { node_listen: [${listenEntry(listen)}]${trusted} }
#   deployment: { role: data_plane, role_data_plane: { config_provider: yaml } }\
${nginxSettings(setup)}
routes:${indentLines('  ', ...routeEntries(setup))}${sharedUpstream(setup)}
#END
`;
}

/** @throws StartError if weir listens for gateways on a Unix socket only */
export function apisixSnippet(setup: GatewaySetup): string {
  const { routes, weir } = setup;
  const uses = routes.map((route) => {
    const which = route.prefix === '/' ? '' : ` whose path begins with ${route.prefix}`;
    return `#   plugin_config_id: ${configId(route)}  # in each route to protect${which}`;
  });
  const trusted = routes[0].policy.trustedHops > 1 ? TRUSTED_ADDRESSES : '';
  const otherRoutes = isWholeSite(routes) ? '' : OTHER_ROUTES;
  return `# For APISIX 3.14 or later: ${describeRoutes(routes)}
# Add these plugin configs to conf/apisix.yaml, or create them with the Admin API, and refer to them
# in existing routes. If a route has one of the plugins itself, APISIX ignores the one below.
${uses.join('\n')}${otherRoutes}${trusted}${weir.needsKey ? KEY_ENVIRONMENT : ''}
plugin_configs:${indentLines(
    '  ',
    ...routes.map((route) => [
      `- id: ${configId(route)}`,
      '  plugins:',
      ...pluginLines(route.policy, weir, undefined).map((line) =>
        line === '' ? '' : `    ${line}`,
      ),
    ]),
  )}
#END
`;
}

/** A port alone means all addresses, also those of IPv6. An IPv6 address needs its brackets. */
function listenEntry(listen: ListenAddress): string {
  if (listensEverywhere(listen)) return String(listen.port);
  return `{ ip: ${JSON.stringify(listen.host)}, port: ${listen.port} }`;
}

const OTHER_ROUTES = `
# Add proxy-rewrite to the other routes of the application, for example with headers/remove. Without
# it APISIX forwards a path as received: an application may take /login/../x for /login.`;
const TRUSTED_ADDRESSES = `
# conf/config.yaml must contain
#   apisix: { trusted_addresses: [<proxies in front>] }`;
const KEY_ENVIRONMENT = `
# conf/config.yaml must contain
#   nginx_config: { envs: [WEIR_KEY] }`;

/** Settings of nginx in conf/config.yaml, as comment lines. */
function nginxSettings({ weir, upstream }: GatewaySetup): string {
  if (!upstream.isHttps) return weir.needsKey ? '\n#   nginx_config: { envs: [WEIR_KEY] }' : '';
  return `
#   nginx_config:${weir.needsKey ? '\n#     envs: [WEIR_KEY]' : ''}
#     # Verify the certificate of the application. For a private CA, name its file here.
#     http_configuration_snippet: |
#       proxy_ssl_verify on;
#       proxy_ssl_verify_depth 5;
#       proxy_ssl_trusted_certificate ${SYSTEM_CA_FILE};`;
}

/** APISIX accepts fewer characters in an id than weir in a namespace. */
function configId({ policy }: Route): string {
  return `weir-${plainName(policy.namespace)}`;
}

/** The longest matching path applies. */
function routeEntries({ routes, weir, upstream }: GatewaySetup): string[][] {
  const isWhole = isWholeSite(routes);
  const nodes = upstreamLines(upstream);
  const entry = (id: string, prefix: string, plugins: string[]) => [
    `- id: ${id}`,
    `  uri: ${prefix}*`,
    ...(plugins.length === 0 ? [] : ['  plugins:']),
    ...plugins.map((line) => (line === '' ? '' : `    ${line}`)),
    ...(isWhole
      ? ['  upstream:', ...nodes.map((line) => `    ${line}`)]
      : ['  upstream_id: application']),
  ];
  const entries = routes.map(({ policy, prefix }) => {
    const id = isWhole ? 'application' : plainName(policy.namespace);
    return entry(id, prefix, pluginLines(policy, weir, upstream.path));
  });
  if (isWhole) return entries;
  const unprotected = [
    '# No namespace protects the other paths. Without proxy-rewrite APISIX forwards a path as',
    '# received: an application may take /login/../x for /login.',
    ...entry('unprotected', '/', rewriteLines(upstream.path)),
  ];
  return [...entries, ...(protectsEveryPath(routes) ? [] : [unprotected])];
}

/** The upstream that all routes share. */
function sharedUpstream({ routes, upstream }: GatewaySetup): string {
  if (isWholeSite(routes)) return '';
  return `\nupstreams:${indentLines(
    '  ',
    ['- id: application'],
    upstreamLines(upstream).map((line) => `  ${line}`),
  )}`;
}

function upstreamLines(upstream: Upstream): string[] {
  return [
    'type: roundrobin',
    ...(upstream.isHttps
      ? [
          'scheme: https',
          '# Send the host of the node as Host and SNI; X-Forwarded-Host has that of the client.',
          'pass_host: node',
        ]
      : []),
    'nodes:',
    `  ${JSON.stringify(authority(upstream))}: 1`,
  ];
}

function addPathLines(path: string): string[] {
  return [`  regex_uri: ["^(/.*)$", "${path}$1"]`];
}

/** Also forwards the path by which APISIX has chosen the route, without its dot segments. */
function rewriteLines(path: string | undefined): string[] {
  return [
    'proxy-rewrite:',
    ...(path === undefined ? [] : addPathLines(path)),
    '  headers:',
    "    # Only weir reads this header: remove it from clients' requests.",
    '    remove:',
    '      - X-Weir-Key',
  ];
}

/** @param path put before the path of each request */
function pluginLines(policy: Policy, weir: WeirAddress, path: string | undefined): string[] {
  if ('socket' in weir) throw tcpOnlyError('APISIX');
  return [
    ...joinRepeatedHeaders(policy),
    ...rewriteLines(path),
    'forward-auth:',
    `  uri: ${JSON.stringify(httpUrl(weir.host, weir.port, checkTarget(policy, 'apisix')))}`,
    '  # GET sends no body. APISIX sets X-Forwarded-For to the address of the connection and',
    "  # replaces the client's X-Forwarded-Method and X-Forwarded-Uri.",
    '  request_method: GET',
    ...requestHeaders(policy),
    ...extraHeaders(policy, weir.needsKey),
    '  # Headers of a denial. APISIX also forwards its body to the client.',
    '  client_headers:',
    ...list([...denialHeaders(policy), ...GRPC_HEADERS]),
    '  # Headers of an allowed request. response-rewrite below copies them to the client.',
    '  upstream_headers:',
    ...list(quotaHeaders(policy)),
    ...failureMode(policy),
    '  # In milliseconds. Long enough for responses that a flood delays on a busy machine.',
    `  timeout: ${TIMEOUT_MS}`,
    '  # weir closes an idle connection after 10 s; APISIX must close it earlier.',
    '  keepalive: true',
    '  keepalive_timeout: 5000',
    '  keepalive_pool: 64',
    'response-rewrite:',
    '  # Only for responses of the application to requests that weir has decided.',
    '  vars:',
    '    - ["upstream_status", "~~", "."]',
    '    - ["http_ratelimit", "~~", "."]',
    '  headers:',
    '    set:',
    ...quotaHeaders(policy).map((name) => {
      return `      ${name}: "$http_${name.toLowerCase().replaceAll('-', '_')}"`;
    }),
  ];
}

const list = (items: readonly string[]) => yamlList(items, 4).split('\n');

/** forward-auth sends the first of repeated headers; the application would receive all of them. */
function joinRepeatedHeaders(policy: Policy): string[] {
  const names = identifyingHeaders(policy).map((name) => JSON.stringify(name));
  if (names.length === 0) return [];
  return `\
serverless-pre-function:
  phase: rewrite
  functions:
    - |
      return function(conf, ctx)
        local request = require("apisix.core").request
        local headers, err = ngx.req.get_headers()
        -- APISIX reads at most 100 headers, so weir would not see the others.
        if err == "truncated" then return 431 end
        -- Of a repeated header, send the application only the line that weir counts.
        for _, name in ipairs({${names.join(', ')}}) do
          local value = headers[name]
          if type(value) == "table" then request.set_header(ctx, name, value[1]) end
        end
      end`.split('\n');
}

function requestHeaders(policy: Policy): string[] {
  return [
    '  # APISIX sends no other header of the client to weir.',
    '  request_headers:',
    ...list(clientHeaders(policy)),
  ];
}

function extraHeaders(policy: Policy, needsKey: boolean): string[] {
  const lines = [];
  if (policy.trustedHops > 1) {
    lines.push(
      '# The value from the proxies in front, with the address of the connection appended.',
      'X-Forwarded-For: "$proxy_add_x_forwarded_for"',
    );
  }
  if (needsKey) {
    lines.push('# APISIX replaces this from its environment when it reads the file.');
    lines.push(`X-Weir-Key: "\${{WEIR_KEY}}"`);
  }
  return lines.length === 0 ? [] : ['  extra_headers:', ...lines.map((line) => `    ${line}`)];
}

function failureMode({ onError }: Policy): string[] {
  const isOpen = onError === 'allow';
  return [
    '  # Applies if weir is stopped or does not respond in time. APISIX returns every other',
    '  # response of weir that is not a 2xx to the client, for example the 401 for a wrong key.',
    `  allow_degradation: ${isOpen}`,
    ...(isOpen ? [] : ['  status_on_error: 429']),
  ];
}
