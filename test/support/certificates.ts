/**
 * Self-signed certificates and their keys, for localhost and 127.0.0.1. They are fixed, so that no
 * test needs a tool to create them. Their keys protect nothing. They were made with
 * `openssl ca -selfsign`, which accepts dates in the past.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface CertificatePair {
  /** The name in the certificate. */
  name: string;
  cert: string;
  key: string;
}

/** Valid from 2020 to 2120. */
export const CERTIFICATE_A: CertificatePair = {
  name: 'weir test one',
  cert: `-----BEGIN CERTIFICATE-----
MIIBXzCCAQSgAwIBAgIBATAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA13ZWlyIHRl
c3Qgb25lMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD
VQQDDA13ZWlyIHRlc3Qgb25lMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEhlOX
QEDj1vWo3ZQScg0hv03L7oRBZJG1U+hPJwdk/wI5WYkqZ6KekxKgSMeIRu2e63X4
RCAROdyC6cY3q0z22KM9MDswGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMB0G
A1UdDgQWBBRhZP5gdbMHunQ9wkO0dxn50sEMpDAKBggqhkjOPQQDAgNJADBGAiEA
ncUj0ER5Imu1PgWQ6UutecnkjJswO+HC8vwymEy6Mt8CIQCkpfDExgwokaxA+YqE
g0lJciQb3Je32J1uq3PKv++xSQ==
-----END CERTIFICATE-----
`,
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgsI6pTWi4x/hAud9v
gFY1gkHfnH98Vi1kPYF/xzmUhOihRANCAASGU5dAQOPW9ajdlBJyDSG/TcvuhEFk
kbVT6E8nB2T/AjlZiSpnop6TEqBIx4hG7Z7rdfhEIBE53ILpxjerTPbY
-----END PRIVATE KEY-----
`,
};

/** Valid from 2020 to 2120 as well. */
export const CERTIFICATE_B: CertificatePair = {
  name: 'weir test two',
  cert: `-----BEGIN CERTIFICATE-----
MIIBXTCCAQSgAwIBAgIBAjAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA13ZWlyIHRl
c3QgdHdvMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD
VQQDDA13ZWlyIHRlc3QgdHdvMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAErjN6
Wf+f+Gkay5kaUBdOrdkHh28W+AdpKti/UHZXDEj7XEW1A5nY69Y028aSWJuooxDW
vhQ/+sChGfJN2OQA4qM9MDswGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMB0G
A1UdDgQWBBSOdNN3qFKywlkRbuiDOAqB7UtGgzAKBggqhkjOPQQDAgNHADBEAiBk
xRl3IpI/90Tp/wOqz+urO8yeBlUxjbB70Ollg2SkIAIgb/dd+5LgtIqp/rwIUES3
7X9+XA7Tw0IffH1yzw7E1K0=
-----END CERTIFICATE-----
`,
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4adfaqyn/w2xPJY3
0cdSkUcPGYs2eHlc1X5lsB5SyN6hRANCAASuM3pZ/5/4aRrLmRpQF06t2QeHbxb4
B2kq2L9QdlcMSPtcRbUDmdjr1jTbxpJYm6ijENa+FD/6wKEZ8k3Y5ADi
-----END PRIVATE KEY-----
`,
};

/** Valid until 2021. */
export const EXPIRED_CERTIFICATE: CertificatePair = {
  name: 'weir test past',
  cert: `-----BEGIN CERTIFICATE-----
MIIBXjCCAQSgAwIBAgIBAzAKBggqhkjOPQQDAjAZMRcwFQYDVQQDDA53ZWlyIHRl
c3QgcGFzdDAeFw0yMDAxMDEwMDAwMDBaFw0yMTAxMDEwMDAwMDBaMBkxFzAVBgNV
BAMMDndlaXIgdGVzdCBwYXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEkjP6
UCxWz0Lf3799fmRYYSkjgelZ1JeDSf4Vqbj1VKbvul0NU4wuOHxY2j4Ef1xXh/94
Z/YbLs/DG2k9XgianqM9MDswGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMB0G
A1UdDgQWBBT+cbVcIYl8jIAluextTH7qAozChTAKBggqhkjOPQQDAgNIADBFAiAo
l+sSpx1AKCA7Rgl246nyCg8np3/4pMQLeMloQWqwIwIhALaY12zhfOreiVCIOk6D
KasXaXB3ZuNSjuXbjEtB/y4U
-----END CERTIFICATE-----
`,
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg3iVeNOoxf2H9v/6B
xs6UsfBQyOLOBmCbBBod1phldCmhRANCAASSM/pQLFbPQt/fv31+ZFhhKSOB6VnU
l4NJ/hWpuPVUpu+6XQ1TjC44fFjaPgR/XFeH/3hn9hsuz8MbaT1eCJqe
-----END PRIVATE KEY-----
`,
};

/** Valid from 2119. */
export const NOT_YET_VALID_CERTIFICATE: CertificatePair = {
  name: 'weir test early',
  cert: `-----BEGIN CERTIFICATE-----
MIIBZDCCAQqgAwIBAgIBBDAKBggqhkjOPQQDAjAaMRgwFgYDVQQDDA93ZWlyIHRl
c3QgZWFybHkwIhgPMjExOTAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowGjEY
MBYGA1UEAwwPd2VpciB0ZXN0IGVhcmx5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD
QgAEbGa/tqzeLKzfILooe3GHl9YynTdpNzCUStzpyNeoE+rH8bCVjK2n/mJiaLtS
7pRdqgADLT930oZvhUzs/t4lcqM9MDswGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/
AAABMB0GA1UdDgQWBBQTiv+OaKSFa3wNokGyq7I7nJ2wKDAKBggqhkjOPQQDAgNI
ADBFAiEApCWY8oZ6Swh+dDctJxAHeH2r3lr2z48gjMA3dC8KCmECIEdOVoTvcr67
ZpScmNpk7o67LsQX4iwxJ1OCXYEUjrQ7
-----END CERTIFICATE-----
`,
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgEANg0F/3ZV5inI2W
PooJN031OamsIp3l6JmXDBfkW1+hRANCAARsZr+2rN4srN8guih7cYeX1jKdN2k3
MJRK3OnI16gT6sfxsJWMraf+YmJou1LulF2qAAMtP3fShm+FTOz+3iVy
-----END PRIVATE KEY-----
`,
};

/** On the curve secp256k1, which Node accepts and uWebSockets.js rejects. */
export const SECP256K1_CERTIFICATE: CertificatePair = {
  name: 'weir test koblitz',
  cert: `-----BEGIN CERTIFICATE-----
MIIBZDCCAQmgAwIBAgIBBTAKBggqhkjOPQQDAjAcMRowGAYDVQQDDBF3ZWlyIHRl
c3Qga29ibGl0ejAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowHDEa
MBgGA1UEAwwRd2VpciB0ZXN0IGtvYmxpdHowVjAQBgcqhkjOPQIBBgUrgQQACgNC
AAQ1jzXIDRSdYlQeKTAtqxUHg45IbLf+Mw9NJS6Bk/jW8lgWbK4BiL/98+6vBGbv
mhZg/dyXcfxU6vvU7rf09phWoz0wOzAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8A
AAEwHQYDVR0OBBYEFLc3tHyXzTGlrzzYvQ15b9S4+t2jMAoGCCqGSM49BAMCA0kA
MEYCIQDj6JYsTJut7UNJAxwZNp4gSbSUJF/++jAvcs2QjfbVRAIhAJk7RCpHJMIn
CMNto06EVQFaghiCTKfUEWuxixZ8trX6
-----END CERTIFICATE-----
`,
  key: `-----BEGIN PRIVATE KEY-----
MIGEAgEAMBAGByqGSM49AgEGBSuBBAAKBG0wawIBAQQg6anDzAjhwYfqBVHpOHMf
7C+qcNXIkVbLiCUciQzmCOWhRANCAAQ1jzXIDRSdYlQeKTAtqxUHg45IbLf+Mw9N
JS6Bk/jW8lgWbK4BiL/98+6vBGbvmhZg/dyXcfxU6vvU7rf09phW
-----END PRIVATE KEY-----
`,
};

/** The key of CERTIFICATE_A, encrypted with a passphrase. */
export const ENCRYPTED_KEY = `-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAihq8gBRwqp6gICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEPecQBljweB5o7XbxgGBtpoEgZBi
mDGNjsddhAmfZOsUbBMA/L4dTBsdLWNzwK170HTunqY3G/rWIF5BB7ezxNE8ktY5
/gZUor4SrQG4PXiS//2ahNJDlzFYfynFx5Tc3m6gPg0r0JN8QD/pCfX/P3sP30jZ
PufvXP8kaYo5eLM6w/VDR/dVazMgf0OyXSkIlge8N47yrYpD3o1wUaNgVOYDsfE=
-----END ENCRYPTED PRIVATE KEY-----
`;

interface CertificateFiles {
  cert: string;
  key: string;
}

/** Writes a certificate and its key to `cert.pem` and `key.pem` in a directory. */
export function writeCertificate(
  directory: string,
  { cert, key }: { cert: string; key: string },
): CertificateFiles {
  const files = { cert: join(directory, 'cert.pem'), key: join(directory, 'key.pem') };
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key, { mode: 0o600 });
  return files;
}

/** The environment variables that configure these files. */
export function tlsEnvironment({ cert, key }: CertificateFiles): Record<string, string> {
  return { WEIR_TLS_CERT: cert, WEIR_TLS_KEY: key };
}
