/**
 * Configurations of an existing site behind each gateway that runs here, to which tests add the
 * printed parts as their comments say. The site has paths without a check.
 */

import { parse, parseAllDocuments, stringify } from 'yaml';

export interface SitePorts {
  listen: number;
  application: number;
}

/** The parts of a snippet, without the comments before the first one. */
function partsOf(snippet: string): string[] {
  return snippet.split(/^(?=# Part \d+: )/m).slice(1);
}

export function nginxSite(snippet: string, { listen, application }: SitePorts): string {
  const [http, server, location] = partsOf(snippet);
  return `
worker_processes 1;
pid nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
  access_log access.log;
  client_body_temp_path client_body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  ${http}
  upstream shop { server 127.0.0.1:${application}; }
  server {
    listen ${listen};
    error_page 404 500 /error.html;
    ${server}
    location / { proxy_pass http://shop; }
    location /login {
      proxy_pass http://shop;
      ${location}
    }
  }
}
`;
}

/** How a site handles its own errors. */
const OWN_ERRORS = 'respond "error of the site" 500';

export function caddySite(snippet: string, { listen, application }: SitePorts): string {
  const [options, definitions, site, proxy] = partsOf(snippet);
  const [imported, ofSite] = site.split(/^(?=import weir_paths$)/m);
  return `
{
	admin off
	auto_https off
	${options}
}
${definitions}
:${listen} {
	handle /static/* {
		reverse_proxy 127.0.0.1:${application}
	}
	handle /login* {
		${imported}
		reverse_proxy 127.0.0.1:${application} {
			${proxy}
		}
	}
	reverse_proxy 127.0.0.1:${application}
	${ofSite.replace(/#.*existing handle_errors.*/, OWN_ERRORS)}
}
`;
}

export function haproxySite(snippet: string, { listen, application }: SitePorts): string {
  const [global, frontend, section] = partsOf(snippet);
  return `
global
  maxconn 2000
${global}
defaults
  mode http
  option forwardfor
  option httpclose
  timeout connect 5s
  timeout client 30s
  timeout server 30s

frontend site
  bind 127.0.0.1:${listen}
${frontend}
  use_backend static if { path_beg /static }
  default_backend shop

backend shop
  server shop 127.0.0.1:${application}

backend static
  server static 127.0.0.1:${application}

${section}`;
}

export function envoySite(snippet: string, { listen, application }: SitePorts): string {
  const [manager, filters, clusters, route] = parseAllDocuments(snippet)
    .map((document) => document.toJS())
    .filter((part) => part !== null);
  const site = parse(`
static_resources:
  listeners:
    - name: site
      address:
        socket_address: { address: 127.0.0.1, port_value: ${listen} }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: site
                route_config:
                  virtual_hosts:
                    - name: site
                      domains: ["*"]
                      routes:
                        - match: { prefix: /login }
                          route: { cluster: shop }
                        - match: { prefix: / }
                          route: { cluster: shop }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: shop
      connect_timeout: 1s
      type: STATIC
      load_assignment:
        cluster_name: shop
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    socket_address: { address: 127.0.0.1, port_value: ${application} }
`);
  const { listeners, clusters: existing } = site.static_resources;
  const existingManager = listeners[0].filter_chains[0].filters[0].typed_config;
  Object.assign(existingManager, manager);
  existingManager.http_filters.unshift(...filters);
  existing.push(...clusters);
  Object.assign(existingManager.route_config.virtual_hosts[0].routes[0], route);
  return stringify(site);
}
