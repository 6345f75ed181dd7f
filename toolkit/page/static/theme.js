"use strict";
/* Runs before the first paint: the theme that the reader chose, if any. */
try {
  const chosen = localStorage.getItem("ctk-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* a frame without storage follows the system */ }
