/** Proxies in front of the admin port that sign in users of the dashboard. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, temporaryDirectory } from '../../support/server.ts';
import { type Gateway, startGateway } from './gateway-process.ts';

export const PROXY_SECRET = 'a-secret-of-the-proxy-and-of-weir';
export const PASSWORD = 'password';

/** The settings of weir. @returns them, and the directory of the secret */
export function proxySettings(roles: string) {
  const directory = temporaryDirectory();
  const file = join(directory, 'secret');
  writeFileSync(file, `${PROXY_SECRET}\n`);
  return {
    directory,
    env: {
      WEIR_DASHBOARD: 'true',
      WEIR_DASHBOARD_USER_HEADER: 'X-Forwarded-User',
      WEIR_DASHBOARD_PROXY_SECRET_FILE: file,
      WEIR_DASHBOARD_USER_ROLES: roles,
    },
  };
}

/** Starts nginx with a part of its configuration. */
export function startNginx(http: string, port: number): Promise<Gateway> {
  const configuration = `
worker_processes 1;
pid nginx.pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path client_body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  ${http}
}
`;
  const fileName = 'nginx.conf';
  const command = (path: string, directory: string) => {
    return ['nginx', '-p', directory, '-c', path, '-g', 'daemon off;'];
  };
  return startGateway({ configuration, fileName, port, command });
}

/**
 * Starts nginx that knows its users by their password.
 * @param directory for the list of users
 */
export async function startBasicAuth(
  adminUrl: string,
  users: readonly string[],
  directory: string,
): Promise<Gateway> {
  const port = await freePort();
  const list = join(directory, 'users');
  writeFileSync(list, users.map((user) => `${user}:{PLAIN}${PASSWORD}\n`).join(''));
  const server = `
  server {
    listen 127.0.0.1:${port};
    location / {
      auth_basic "weir";
      auth_basic_user_file ${list};
      proxy_set_header X-Forwarded-User $remote_user;
      proxy_set_header X-Weir-Proxy-Secret ${PROXY_SECRET};
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_pass ${adminUrl};
    }
  }`;
  return startNginx(server, port);
}

export function basicAuth(user: string): Record<string, string> {
  const credentials = Buffer.from(`${user}:${PASSWORD}`).toString('base64');
  return { Authorization: `Basic ${credentials}` };
}
