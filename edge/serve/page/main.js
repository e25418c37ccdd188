// The page of `bitnet-edge serve`: which of its two faces is shown.
const { kiosk, locked } = JSON.parse(document.getElementById("config").textContent);
for (const each of document.querySelectorAll(kiosk ? ".home" : ".visitors")) each.remove();
if (kiosk) (await import("./kiosk.js")).start(kiosk);
else (await import("./home.js")).start(locked);
