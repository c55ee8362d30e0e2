/**
 * The settings of a proxy that signs in users of the dashboard, with the secret in its file.
 * Settings that do not fit together and an invalid secret stop the start with a StartError. No
 * message contains the secret.
 */

import { UserRoles } from '../auth/users.ts';
import { PROXY_SECRET_MAX_CHARACTERS, PROXY_SECRET_MIN_CHARACTERS } from '../core/constants.ts';
import { StartError } from '../core/errors.ts';
import { isLoopbackHost } from '../core/hosts.ts';
import { environmentName, type SettingName, type Settings } from './schema.ts';
import { readText, SettingsError } from './setting-value.ts';

export interface DashboardProxy {
  /** The header with the name of the user, as in the setting. */
  userHeader: string;
  secret: string;
  roles: UserRoles;
}

const SECRET = new RegExp(
  `^[\\x21-\\x7e]{${PROXY_SECRET_MIN_CHARACTERS},${PROXY_SECRET_MAX_CHARACTERS}}$`,
);

/** Whether the admin port serves the dashboard. */
export function servesDashboard({ dashboard, adminHost }: Settings): boolean {
  return dashboard === 'true' || (dashboard === 'auto' && isLoopbackHost(adminHost));
}

/**
 * @param isSet whether a setting has another source than its default, also if it is invalid
 * @returns undefined where no proxy signs in users
 * @throws StartError
 */
export function loadDashboardProxy(
  settings: Settings,
  isSet: (name: SettingName) => boolean,
): DashboardProxy | undefined {
  const { dashboardUserHeader, dashboardProxySecretFile, dashboardUserRoles } = settings;
  if (!isSet('dashboardUserHeader')) {
    for (const name of ['dashboardProxySecretFile', 'dashboardUserRoles'] as const) {
      if (isSet(name)) throw missing(name, 'dashboardUserHeader');
    }
    return undefined;
  }
  if (!isSet('dashboardProxySecretFile')) {
    throw missing('dashboardUserHeader', 'dashboardProxySecretFile');
  }
  if (!servesDashboard(settings)) {
    throw new SettingsError(
      ['dashboardUserHeader', 'dashboard'],
      'WEIR_DASHBOARD_USER_HEADER requires the dashboard, which is off: set WEIR_DASHBOARD=true',
    );
  }
  // One of them is invalid, which is another fault.
  if (dashboardUserHeader === undefined || dashboardProxySecretFile === undefined) return undefined;
  const secret = readSecret(dashboardProxySecretFile);
  return { userHeader: dashboardUserHeader, secret, roles: new UserRoles(dashboardUserRoles) };
}

function missing(set: SettingName, other: SettingName): SettingsError {
  const sentence = `${environmentName(set)} requires ${environmentName(other)}, which is not set`;
  return new SettingsError([set], sentence);
}

function readSecret(path: string): string {
  const secret = readText('WEIR_DASHBOARD_PROXY_SECRET_FILE', path).trim();
  if (SECRET.test(secret)) return secret;
  const { length } = [...secret];
  const got = length === 0 ? 'nothing' : `a text of ${length} characters`;
  throw new StartError(
    `the secret in ${path} must be ${PROXY_SECRET_MIN_CHARACTERS} to ` +
      `${PROXY_SECRET_MAX_CHARACTERS} visible ASCII characters without spaces (openssl rand ` +
      `-hex 32 makes a good one); got ${got}`,
  );
}
