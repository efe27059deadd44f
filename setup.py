"""Install hqlt_lab/, components/ and registry/ as one package, hqlt_lab; everything else is in pyproject.toml.

New sub-packages are found automatically.
"""

from setuptools import find_packages, setup

MAPPED = {"hqlt_lab.components": "components", "hqlt_lab.registry": "registry"}

setup(
    package_dir={"hqlt_lab": "hqlt_lab", **MAPPED},
    packages=[
        *find_packages(include=["hqlt_lab", "hqlt_lab.*"]),
        *(
            f"hqlt_lab.{name}"
            for name in find_packages(include=["components", "components.*", "registry", "registry.*"])
        ),
    ],
    package_data={
        "hqlt_lab": ["py.typed"],
        "hqlt_lab.cli": ["templates/*.txt"],
        "hqlt_lab.memory_profile": ["battery/*.yaml"],
        "hqlt_lab.report.render": ["templates/*.*"],
    },
)
